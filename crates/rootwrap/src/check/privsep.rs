//! Services that start `privsep-helper`, for which strict mode has no rule of its own.

use crate::filters::{Class, Rule};
use crate::judge::Mode;
use crate::policy::Policy;
use crate::problem::Problem;
use crate::python::basename;
use std::ffi::OsStr;
use std::path::Path;

/// Services of OpenStack that use oslo.privsep, and a pattern for the contexts that they name.
const SERVICES: [(&str, &str); 9] = [
    ("ceilometer", r"ceilometer\.privsep\.[a-z_]+"),
    ("cinder", r"(cinder\.privsep|os_brick\.privileged)\.[a-z_]+"),
    ("cyborg", r"cyborg\.privsep\.[a-z_]+"),
    ("glance", r"os_brick\.privileged\.[a-z_]+"),
    ("manila", r"manila\.privsep\.[a-z_]+"),
    ("masakarimonitors", r"masakarimonitors\.privsep\.[a-z_]+"),
    ("neutron", r"neutron\.privileged\.[a-z_]+"),
    ("nova", r"(nova\.privsep|os_brick\.privileged|vif_plug_[a-z_]+\.privsep)\.[a-z_]+"),
    ("zun", r"(zun\.common|os_brick)\.privileged\.[a-z_]+"),
];

/// Of each such service that has a directory of filters, and of rules that take any arguments.
pub(super) fn problems(policy: &Policy) -> Vec<Problem> {
    let is_helpers = |rule: &&Rule| basename(OsStr::new(&rule.exec_path)) == "privsep-helper";
    let rules: Vec<&Rule> = policy.rules(Mode::Strict).filter(is_helpers).collect();
    let mut problems = Vec::new();
    for rule in rules.iter().filter(|rule| matches!(rule.class, Class::Command)) {
        let Some(place) = &rule.place else { continue };
        let what = format!(
            "{}: the caller chooses the configuration of privsep-helper, which runs code that it names",
            rule.name
        );
        let instead =
            format!("name the arguments: {}", line("SERVICE", r"SERVICE\.privsep\.[a-z_]+"));
        problems.push(Problem::warning(&place.file, place.line, what, instead));
    }
    if !rules.is_empty() {
        return problems;
    }
    for (service, contexts) in SERVICES {
        let is_of_service =
            |path: &&String| Path::new(path).components().any(|name| name.as_os_str() == service);
        let Some(filters) = policy.conf.filters_path.iter().find(is_of_service) else { continue };
        let what = format!(
            "no rule is for privsep-helper, which {service} starts: compat mode has one for any arguments, strict mode \
             has none"
        );
        let instead = format!("for strict mode add: {}", line(service, contexts));
        problems.push(Problem::warning(Path::new(filters), 0, what, instead));
    }
    problems
}

/// The rule for a service with one configuration file.
fn line(service: &str, contexts: &str) -> String {
    format!(
        r"privsep-{service}: RegExpFilter, privsep-helper, root, privsep-helper, --config-file, /etc/{service}/{service}\.conf, --privsep_context, {contexts}, --privsep_sock_path, /tmp/[^/]+/privsep\.sock"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::ThisHost;
    use crate::judge::judge;
    use std::ffi::OsString;

    fn policy(service: &str, rules: &str) -> Policy {
        let conf = format!(
            "[DEFAULT]\nfilters_path=/etc/{service}/rootwrap.d,/usr/share/{service}/rootwrap\nexec_dirs=/usr/bin\n"
        );
        let rules = format!("[Filters]\n{rules}");
        Policy::of_texts(conf.as_bytes(), &[rules.as_bytes()]).unwrap()
    }

    #[test]
    fn check_privsep_service_gets_rule_that_works() {
        let told = problems(&policy("nova", "ls: CommandFilter, ls, root\n"));
        let [problem] = &told[..] else { panic!("{told:?}") };
        assert!(problem.to_string().starts_with("/etc/nova/rootwrap.d: warning: "), "{problem}");
        let (_, rule) = problem.instead.split_once("add: ").unwrap();
        let nova =
            policy("nova", &format!("{rule}\n").replace(", privsep-helper, root", ", true, root"));
        assert_eq!(problems(&policy("nova", rule)), []);
        let runs = |context: &str, conf: &str| {
            let command = ["privsep-helper", "--config-file", conf, "--privsep_context", context]
                .into_iter()
                .chain(["--privsep_sock_path", "/tmp/tmpx1/privsep.sock"]);
            let command: Vec<OsString> = command.map(OsString::from).collect();
            judge(Mode::Strict, &nova, &command, &ThisHost::new()).is_ok()
        };
        for context in [
            "nova.privsep.sys_admin_pctxt",
            "os_brick.privileged.default",
            "vif_plug_ovs.privsep.vif_plug",
        ] {
            assert!(runs(context, "/etc/nova/nova.conf"), "{context}");
        }
        assert!(!runs("nova.privsep.sys_admin_pctxt", "/tmp/nova.conf"));
        assert!(!runs("os.system", "/etc/nova/nova.conf"));
        assert_eq!(problems(&policy("other", "ls: CommandFilter, ls, root\n")), []);
    }

    #[test]
    fn check_privsep_rule_without_arguments_warns() {
        let told = problems(&policy("nova", "p: CommandFilter, /opt/bin/privsep-helper, root\n"));
        let [problem] = &told[..] else { panic!("{told:?}") };
        assert!(problem.to_string().contains(":2: warning: p: the caller chooses"), "{problem}");
    }
}

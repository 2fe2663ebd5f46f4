// SPDX-License-Identifier: MIT OR Apache-2.0
//! Warnings about `privsep-helper`: strict mode refuses it unless a filter allows it. `evaluate` decides about
//! commands; this module only predicts it for `config_check`.

use crate::diagnostic::warning;
use crate::filters::{FilterClass, FilterRule};
use crate::mode::Mode;
use crate::pattern::Pattern;
use crate::python_strings::basename;
use crate::rootwrap_policy::RootwrapPolicy;
use roster_messages::Diagnostic;
use roster_messages::table::commands;
use std::ffi::OsStr;
use std::path::Path;

/// Options of privsep-helper that name a configuration.
const CONFIGURATIONS: [&str; 3] = ["--config-file", "--config-dir", "--log-config-append"];

/// Files that a caller can write.
const FOREIGN: [&str; 2] = ["/tmp/x", "/etc/x/../../tmp/x"];

/// Services of OpenStack with oslo.privsep, and a pattern for their contexts.
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

/// Returns a warning for each such service in `filters_path` without a filter, and for each filter that accepts a
/// configuration of the caller.
pub(super) fn problems(policy: &RootwrapPolicy) -> Vec<Diagnostic> {
    let is_helpers = |rule: &&FilterRule| basename(OsStr::new(&rule.exec_path)) == "privsep-helper";
    let rules: Vec<&FilterRule> = policy.rules(Mode::Strict).filter(is_helpers).collect();
    let mut problems = Vec::new();
    for rule in rules.iter().filter(|rule| takes_foreign_configuration(&rule.class)) {
        let Some(place) = &rule.location else { continue };
        let text =
            "the caller selects the configuration of privsep-helper, which names code to execute";
        let example = line("SERVICE", r"SERVICE\.privsep\.[a-z_]+");
        problems.push(Diagnostic {
            key: rule.name.clone(),
            fix: Some(format!("Write the arguments, and the file without a wildcard: {example}")),
            ..warning(&commands::CHECK_PRIVSEP_CONFIG, &place.file, place.line, text)
        });
    }
    if !rules.is_empty() {
        return problems;
    }
    for (service, contexts) in SERVICES {
        let is_of_service =
            |path: &&String| Path::new(path).components().any(|name| name.as_os_str() == service);
        let Some(filters) = policy.conf.filters_path.iter().find(is_of_service) else { continue };
        let text = format!(
            "no filter for privsep-helper, which {service} starts: compat mode has a built-in one, and strict mode \
             does not"
        );
        problems.push(Diagnostic {
            fix: Some(format!("For strict mode add: {}", line(service, contexts))),
            ..warning(&commands::CHECK_PRIVSEP_MISSING, Path::new(filters), 0, text)
        });
    }
    problems
}

/// Returns true if a filter for privsep-helper accepts a file of the caller.
fn takes_foreign_configuration(class: &FilterClass) -> bool {
    match class {
        FilterClass::Command | FilterClass::Env(_) => true,
        FilterClass::RegExp(patterns) | FilterClass::ChainingRegExp(patterns) => {
            patterns.windows(2).any(|pair| takes_foreign_file(&pair[0], &pair[1]))
        }
        _ => false,
    }
}

/// Returns true if the second word may name a configuration of the caller: behind an option, or in one word with it.
fn takes_foreign_file(before: &Pattern, pattern: &Pattern) -> bool {
    let is_value = before.text().starts_with('-') && !before.text().contains('=');
    CONFIGURATIONS.iter().any(|option| {
        let takes_option = before.matches_text(Mode::Strict, option);
        let start = if takes_option { String::new() } else { format!("{option}=") };
        let mut foreign = FOREIGN.iter().map(|file| format!("{start}{file}"));
        (takes_option || !is_value)
            && (foreign.any(|word| pattern.matches_text(Mode::Strict, &word))
                || pattern.words_elsewhere(|sample| sample.starts_with(&start)).next().is_some())
    })
}

/// Returns the filter for a service with one configuration file.
fn line(service: &str, contexts: &str) -> String {
    format!(
        r"privsep-{service}: RegExpFilter, privsep-helper, root, privsep-helper, --config-file, /etc/{service}/{service}\.conf, --privsep_context, {contexts}, --privsep_sock_path, /tmp/[^/]+/privsep\.sock"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::evaluate;
    use crate::host_facts::LocalHost;
    use std::ffi::OsString;

    fn policy(service: &str, rules: &str) -> RootwrapPolicy {
        let conf = format!(
            "[DEFAULT]\nfilters_path=/etc/{service}/rootwrap.d,/usr/share/{service}/rootwrap\nexec_dirs=/usr/bin\n"
        );
        let rules = format!("[Filters]\n{rules}");
        RootwrapPolicy::from_texts(conf.as_bytes(), &[rules.as_bytes()]).unwrap()
    }

    #[test]
    fn check_privsep_service_gets_rule_that_works() {
        let told = problems(&policy("nova", "ls: CommandFilter, ls, root\n"));
        let [problem] = &told[..] else { panic!("{told:?}") };
        assert!(problem.to_string().starts_with("/etc/nova/rootwrap.d: warning: "), "{problem}");
        assert_eq!(problem.message, &commands::CHECK_PRIVSEP_MISSING);
        let (_, rule) = problem.fix().split_once("add: ").unwrap();
        let nova =
            policy("nova", &format!("{rule}\n").replace(", privsep-helper, root", ", true, root"));
        assert_eq!(problems(&policy("nova", rule)), []);
        let runs = |context: &str, conf: &str| {
            let command = ["privsep-helper", "--config-file", conf, "--privsep_context", context]
                .into_iter()
                .chain(["--privsep_sock_path", "/tmp/tmpx1/privsep.sock"]);
            let command: Vec<OsString> = command.map(OsString::from).collect();
            evaluate(Mode::Strict, &nova, &command, &LocalHost::new()).is_ok()
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
    fn check_privsep_rule_with_foreign_configuration_warns() {
        let helper = "RegExpFilter, privsep-helper, root, privsep-helper";
        for rule in [
            "CommandFilter, /opt/bin/privsep-helper, root",
            "EnvFilter, env, root, A=, privsep-helper",
            // Filters of this form are in files of several services.
            &format!(
                r"{helper}, --config-file, /etc/(?!\.\.).*, --privsep_context, a\.b, --privsep_sock_path, /tmp/.*"
            ),
            &format!("{helper}, --config-file, .*"),
            &format!("{helper}, .*, /etc/nova/.*"),
            &format!("{helper}, --config-dir=/etc/nova/.*"),
            &format!("{helper}, --config-file, /etc/nova/nova.conf, .*"),
        ] {
            let told = problems(&policy("nova", &format!("p: {rule}\n")));
            let [problem] = &told[..] else { panic!("{rule}: {told:?}") };
            assert_eq!(problem.message, &commands::CHECK_PRIVSEP_CONFIG, "{rule}");
            assert_eq!((problem.line, &*problem.key), (2, "p"), "{rule}: {problem}");
        }
        for rule in [
            format!(r"{helper}, --config-file, /etc/nova/nova\.conf"),
            format!("{helper}, --config-file, /etc/nova/[a-z.-]+, --privsep_context, .*"),
            "PathFilter, privsep-helper, root, --config-file, /etc/nova".into(),
        ] {
            assert_eq!(problems(&policy("nova", &format!("p: {rule}\n"))), [], "{rule}");
        }
    }
}

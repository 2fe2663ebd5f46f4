// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several search bases, referrals, and domains that are skipped while they are away, as a host sees them.

use roster_system_tests::rosterd::SOON;
use roster_system_tests::{
    DirectoryServer, DomainTable, LdifBuilder, Rosterd, Schema, Slapd, SlapdOptions, c_program,
    run, wait_for,
};

const SCHEMA: Schema = Schema::Rfc2307;
const LAB: &str = "dc=lab,dc=example";

/// Users in `ou=people` and in `ou=staff`, and a subtree on another server.
fn slapd() -> Slapd {
    let directory = LdifBuilder::new(SCHEMA);
    let in_staff = |text: String| text.replace(",ou=people,", ",ou=staff,");
    let ldif = directory.tree()
        + "dn: ou=staff,dc=example,dc=com\nobjectClass: organizationalUnit\nou: staff\n\n"
        + &directory.user("anna", 5001)
        + &in_staff(directory.user("stan", 5002))
        + &directory.group("team", 7001, &["anna", "stan"]);
    let slapd = Slapd::serving(SlapdOptions::new(SCHEMA), &ldif);
    slapd.change_relaxed(
        "dn: ou=abroad,dc=example,dc=com\nchangetype: add\nobjectClass: referral\n\
         objectClass: extensibleObject\nou: abroad\n\
         ref: ldap://ldap2.example.com/ou=abroad,dc=example,dc=com\n\n",
    );
    slapd
}

const BOTH: &str = r#"["ou=people,dc=example,dc=com", { base = "ou=staff,dc=example,dc=com", scope = "one", filter = "(uid=s*)" }]"#;

#[test]
fn bases_of_list_are_served_and_changed() {
    for mode in ["replicate", "on-demand"] {
        let slapd = slapd();
        let domain = |bases: &str| {
            DomainTable::ldap("corp", &slapd)
                .with("mode", &format!("\"{mode}\""))
                .with("user_base", bases)
        };
        let mut rosterd = Rosterd::start(&[domain(BOTH)]);
        rosterd.expect("group", "team", Some("team:*:7001:anna,stan"));
        let moved = |name: &str, from: &str, to: &str| {
            let dn = format!("uid={name},ou={from},dc=example,dc=com");
            let to = format!("ou={to},dc=example,dc=com");
            slapd.rename(&dn, &format!("uid={name}"), Some(&to));
        };
        moved("stan", "staff", "people");
        rosterd.expect("group", "team", Some("team:*:7001:anna,stan"));
        rosterd.expect_groups("stan", 5002, &[5002, 7001]);
        moved("stan", "people", "staff");
        rosterd.expect_groups("stan", 5002, &[5002, 7001]);
        // Another list is another base.
        rosterd.stop();
        rosterd.set_domains(&[domain("\"ou=staff,dc=example,dc=com\"")]);
        rosterd.launch();
        if mode == "on-demand" {
            rosterd.expect("passwd", "anna", None);
            rosterd.expect("group", "team", Some("team:*:7001:stan"));
        } else {
            wait_for(SOON, || {
                let told = rosterd.roster(&["domain", "approve-removals", "corp"]);
                match rosterd.getent("passwd", "anna") {
                    None => Ok(()),
                    Some(_) => Err(told.error()),
                }
            });
            rosterd.expect("group", "team", Some("team:*:7001:stan"));
        }
    }
}

#[test]
fn bases_missing_one_is_named_and_removes_nothing() {
    let slapd = slapd();
    let rosterd = Rosterd::start(&[DomainTable::ldap("corp", &slapd).with("user_base", BOTH)]);
    rosterd.expect("group", "team", Some("team:*:7001:anna,stan"));
    slapd.rename("ou=staff,dc=example,dc=com", "ou=crew", None);
    wait_for(SOON, || {
        let domain = rosterd.domain("corp")?;
        let reason = domain["reason"].as_str().unwrap_or_default();
        let is_named = reason.contains("ou=staff,dc=example,dc=com");
        if is_named { Ok(()) } else { Err(domain.to_string()) }
    });
    assert_eq!(rosterd.getent("group", "team").as_deref(), Some("team:*:7001:anna,stan"));
}

#[test]
fn referral_is_warning_of_status() {
    let slapd = slapd();
    let rosterd = Rosterd::start(&[DomainTable::ldap("corp", &slapd)]);
    wait_for(SOON, || {
        let domain = rosterd.domain("corp")?;
        let is_it = domain["referrals"] == serde_json::json!(["ldap2.example.com"]);
        if is_it { Ok(()) } else { Err(domain.to_string()) }
    });
    let told = rosterd.roster(&["status"]).stdout;
    let told = String::from_utf8_lossy(&told);
    assert!(told.contains("refers to ldap2.example.com") && told.contains("[RST-3720]"), "{told}");
}

/// Two on-demand domains with separate id ranges. The first may be skipped.
#[test]
fn domain_away_lets_next_answer() {
    let corp_people = LdifBuilder::new(SCHEMA);
    let corp = corp_people.tree() + &corp_people.user("alice", 10_001);
    let lab_people = LdifBuilder::below_base(LAB, SCHEMA);
    let lab = lab_people.tree()
        + &lab_people.user("alice", 20_001)
        + &lab_people.user("bob", 20_002)
        + &lab_people.group("crew", 20_100, &["alice", "bob"]);
    let mut corp = Slapd::serving(SlapdOptions::new(SCHEMA), &corp);
    let lab =
        Slapd::serving(SlapdOptions { base: LAB.to_owned(), ..SlapdOptions::new(SCHEMA) }, &lab);
    let on_demand = |name: &str, server: &Slapd, ids: [&str; 2]| {
        DomainTable::ldap(name, server)
            .with("mode", "\"on-demand\"")
            .with("connect_timeout", "\"1s\"")
            .with("min_id", ids[0])
            .with("max_id", ids[1])
    };
    let corp_domain = on_demand("corp", &corp, ["10000", "19999"]).with("when_away", "\"next\"");
    let rosterd = Rosterd::start(&[corp_domain, on_demand("lab", &lab, ["20000", "29999"])]);
    rosterd.wait_for_snapshot();
    for domain in ["corp", "lab"] {
        rosterd.expect_domain_status(domain, "online", true);
    }
    let uid = |name: &str| {
        let found = rosterd.getent("passwd", name)?;
        found.split(':').nth(2).map(ToOwned::to_owned)
    };
    assert_eq!(uid("alice").as_deref(), Some("10001"));
    corp.stop();
    rosterd.expect_domain_status("corp", "online", false);
    assert_eq!(uid("bob").as_deref(), Some("20002"), "no program requested him before");
    assert_eq!(uid("20002").as_deref(), Some("20002"));
    assert_eq!(uid("alice").as_deref(), Some("10001"), "she is known");
    // The domain that is away has the name, so the other user has it with the domain.
    let other = rosterd.getent("passwd", "20001").expect("there");
    assert!(other.starts_with("alice@lab:*:20001:"), "{other}");
    rosterd.expect("group", "crew", Some("crew:*:20100:alice@lab,bob"));
    rosterd.expect_groups("bob", 20_002, &[20_002, 20_100]);
    // Names that the domain may have do not count as absent.
    let mut lookup = rosterd.host().command(c_program("parallel_lookups"));
    let told = run(lookup.args(["1", "50000", "carol"])).text();
    assert!(told.contains("absent 0 failed 1"), "{told}");
    corp.start();
    rosterd.expect_domain_status("corp", "online", true);
    rosterd.expect("passwd", "carol", None);
}

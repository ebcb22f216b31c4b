//! One program with two sources of masters: a configuration file, and a list beside it.

use testkit::server::masters;

use crate::support::{Running, at, configure, ended, list, urls, with};

const LOCKS: &str = "key_template = \"locks:{name}\"";

/// Two holders of one name were possible: one knew the lock as `job`, the other as `locks:job`.
#[test]
fn a_list_that_drops_settings_of_the_file_is_an_error() {
    let masters = masters(3);
    let folder = masters[0].directory();
    let list = urls(&masters);
    let part = masters[0].url().replace("127.0.0.1", "localhost");
    for (settings, option) in [
        (LOCKS, "--key-template"),
        ("quarantine = \"strict\"", "--quarantine"),
        ("quarantine = \"off\"", "--quarantine"),
        ("max_ttl = \"2m\"", "--max-ttl"),
    ] {
        configure(folder, &self::list(&masters), settings);
        let by_option = format!("run -n --master {list} job -- echo ran");
        let some = format!("status job --master {part}");
        for (words, list, source) in [
            ("run -n job -- echo ran", &*list, "QUORLOCK_MASTERS"),
            (&by_option, "", "--master"),
            (&some, "", "--master"),
        ] {
            ended(at(folder, words).env("QUORLOCK_MASTERS", list))
                .gives(78, "")
                .last_says(&format!("; use --profile cron, or give {option}\n"))
                .first_says(&format!("quorlock: {source} has 127.0.0.1:"));
        }
    }
}

/// Two programs with different profiles could hold one lock after a restart of the masters.
#[test]
fn profiles_with_the_same_locks_have_the_same_settings() {
    let masters = masters(3);
    let folder = masters[0].directory();
    let local = masters[0].url().replace("127.0.0.1", "localhost");
    for (settings, expected) in [
        ("max_ttl = \"2m\"", "max_ttl"),
        ("quarantine = \"strict\"", "quarantine"),
        ("quarantine = \"off\"", "quarantine"),
        (
            "max_ttl = \"60s\"\nquarantine = \"observed\"\nttl = \"7s\"",
            "",
        ),
        ("key_template = \"{name}\"", ""),
        // A purpose of its own, whose locks are others.
        ("key_template = \"long:{name}\"\nmax_ttl = \"2m\"", ""),
    ] {
        let other = format!("[profile.other]\nmasters = [{local:?}]\n{settings}");
        configure(folder, &list(&masters), &other);
        let ended = ended(&mut at(folder, "--profile cron status job"));
        if expected.is_empty() {
            ended.is(0);
            continue;
        }
        ended.is(78).last_says(&format!(
            " in the profiles \"cron\" and \"other\", which differ in {expected}, so two programs could \
             hold one lock; give both the same {expected}\n"
        ));
    }
}

/// Other programs would not know the longer quarantine that such a lock needs.
#[test]
fn a_long_ttl_needs_a_max_ttl_in_the_profile_as_on_the_command_line() {
    let masters = masters(3);
    let folder = masters[0].directory();
    let says = "out of range: it must be at most 60s (max_ttl), so give a shorter --ttl or ttl";
    for (settings, options, expected, says) in [
        ("ttl = \"2m\"", "", 78, says),
        ("", "--ttl 2m", 78, says),
        ("ttl = \"2m\"\nmax_ttl = \"2m\"", "", 0, ""),
        ("max_ttl = \"2m\"", "--ttl 2m", 0, ""),
        ("ttl = \"2m\"", "--max-ttl 2m", 0, ""),
        ("max_ttl = \"5s\"", "--ttl 3s", 0, ""),
    ] {
        configure(folder, &list(&masters), settings);
        let words = format!("run -n {options} job -- true");
        ended(&mut at(folder, &words)).is(expected).says(says);
    }
}

#[test]
fn settings_that_are_given_or_the_same_are_no_error() {
    let masters = masters(3);
    let folder = masters[0].directory();
    let urls = urls(&masters);
    let ends = |words: &str, variables: &[(&str, &str)], expected: i32| {
        let mut command = at(folder, words);
        command.env("QUORLOCK_MASTERS", &urls);
        ended(command.envs(variables.iter().copied())).is(expected);
    };
    let usual = "key_template = \"{name}\"\nquarantine = \"observed\"\nmax_ttl = \"60s\"";
    configure(folder, &list(&masters), usual);
    ends("status job", &[], 0);
    let settings = format!("{LOCKS}\nmax_ttl = \"2m\"");
    configure(folder, &list(&masters), &settings);
    let _holder = Running::held(&mut at(folder, "hold job"));
    for command in ["status job", "run -n job -- true"] {
        ends(&format!("--profile cron {command}"), &[], 75);
        let options = "--key-template locks:{name} --max-ttl 2m";
        ends(&format!("{options} {command}"), &[], 75);
        let template = ("QUORLOCK_KEY_TEMPLATE", "locks:{name}");
        ends(command, &[template, ("QUORLOCK_MAX_TTL", "2m")], 75);
        let words = format!("--key-template {{name}} {command}");
        ends(&words, &[template, ("QUORLOCK_MAX_TTL", "2m")], 0);
    }
    configure(folder, &list(&masters), "quarantine = \"strict\"");
    let quarantine = |word| ("QUORLOCK_QUARANTINE", word);
    ends("status job", &[quarantine("observed")], 0);
    let words = "--quarantine off status job";
    ends(words, &[quarantine("strict")], 0);
    ends(
        "--quarantine strict run -n --ready 10ms job -- true",
        &[],
        69,
    ); // new masters have no vote
    ends("status job", &[quarantine("true")], 78);
    let wrong = [quarantine("strict"), ("QUORLOCK_MAX_TTL", "one")];
    ends("status job", &wrong, 78);
    ends("--quarantine strict status job --quarantine off", &[], 64);
}

/// A program that holds locks by other settings than its user thinks is one of two holders.
#[test]
fn variables_that_count_for_nothing_are_told_of() {
    let masters = masters(3);
    let folder = masters[0].directory();
    let file = configure(folder, &list(&masters), "ttl = \"20\"");
    let list = urls(&masters);
    let told = format!(
        "quorlock: these variables count for nothing: QUORLOCK_CONFIG, QUORLOCK_QUARANTINE, \
         QUORLOCK_USER; `quorlock man | man -l -` shows those that count beside the profile \"cron\" in \
         {}\n",
        file.display()
    );
    for (words, list, expected) in [
        ("--profile cron run a -- true", &*list, &*told),
        ("status a", "", &told),
        ("run -q a -- true", "", ""),
    ] {
        let mut command = at(folder, words);
        let others = [
            "QUARANTINE",
            "USER",
            "CONFIG",
            "LOCK",
            "A_SERVICE_HOST",
            "A_PORT",
        ];
        let others = others.map(|name| (format!("QUORLOCK_{name}"), "false"));
        command.envs(others).env_remove("QUORLOCK_TEST");
        command.env("QUORLOCK_MASTERS", list);
        let ended = ended(command.env("QUORLOCK_PASSWORD", "").env("QUORLOCK_TTL", ""));
        assert_eq!(ended.is(0).err, expected, "{words}");
    }
}

#[test]
fn a_misspelt_variable_is_no_setting() {
    let masters = masters(1);
    let folder = masters[0].directory();
    let list = urls(&masters);
    let with = |name: &str, list: &str| {
        let mut command = at(folder, "status a");
        ended(command.env("QUORLOCK_MASTERS", list).env(name, "redis://b"))
    };
    let expected = "quorlock: the variable QUORLOCK_MASTER is not known: is it QUORLOCK_MASTERS?\n";
    with("QUORLOCK_MASTER", "")
        .is(78)
        .first_says(expected)
        .in_lines(1);
    with("QUORLOCK_OLD_MASTER", &list).is(78);
    with("QUORLOCK_PROFILE", &list)
        .is(0)
        .first_says("quorlock: these variables count for nothing: QUORLOCK_PROFILE; ")
        .last_says(" count beside QUORLOCK_MASTERS\n");
}

#[test]
fn a_list_that_is_wrong_has_one_status_wherever_it_comes_from() {
    let masters = masters(1);
    let good = urls(&masters);
    let port = "the port in its URL is not a number";
    let twice = "masters 1 and 2 are the same server";
    for (list, why) in [(vec!["redis://b:x"], port), ([&*good].repeat(2), twice)] {
        let file = configure(masters[0].directory(), &list, "");
        let list = list.join(",");
        let by_option = format!("status a --master {list}");
        let old_masters = format!("status a --master {good} --old-master {list}");
        let by_file = format!("status a --config {}", file.display());
        for (words, list) in [
            (&*by_option, ""),
            (&old_masters, ""),
            (&by_file, ""),
            ("status a", &list),
        ] {
            let mut command = with(&[], words);
            ended(command.env("QUORLOCK_MASTERS", list))
                .is(78)
                .says(why);
        }
    }
}

#[test]
fn a_file_about_other_masters_is_no_error() {
    let (ours, theirs) = (masters(3), masters(1));
    let folder = ours[0].directory();
    let strict = format!("{LOCKS}\nquarantine = \"strict\"");
    let other = urls(&ours).replace(',', "/1,") + "/1";
    // Another database has other keys.
    for (in_file, urls) in [(&ours, other), (&theirs, urls(&ours))] {
        configure(folder, &list(in_file), &strict);
        ended(at(folder, "run -n a -- true").env("QUORLOCK_MASTERS", urls)).is(0);
    }
    // What the command line names comes before the environment.
    let words = "status a --key-template other:{name} --json --config";
    let mut named = at(folder, words);
    named.arg(folder.join("quorlock.toml"));
    let shown = ended(named.env("QUORLOCK_MASTERS", urls(&ours))).json();
    assert_eq!(shown["locks"][0]["masters"].as_array().unwrap().len(), 1);
}

#[test]
fn the_status_and_the_doctor_say_where_the_masters_come_from() {
    let masters = masters(3);
    let folder = masters[0].directory();
    let file = configure(folder, &list(&masters), "ttl = \"5s\"");
    let list = urls(&masters);
    let profile = format!("the profile \"cron\" in {}", file.display());
    let option = format!("--master {list}");
    for (words, list, source) in [
        ("", "", &*profile),
        (&option, "", "--master"),
        ("", &list, "QUORLOCK_MASTERS"),
    ] {
        let run = |command: &str| {
            let words = format!("{words} {command}");
            ended(at(folder, &words).env("QUORLOCK_MASTERS", list))
        };
        let text = format!("\nthe masters are those of {source}\n");
        run("status a").ends(&text);
        run("doctor").shows(&format!("{text}3 masters; "));
        for command in ["status a --json", "doctor --json"] {
            assert_eq!(run(command).json()["source"], *source);
        }
    }
}

/// The library refuses these times, and its error shows the one that counts.
#[test]
fn timeouts_come_from_the_option_then_the_variable_or_the_file() {
    let masters = masters(1);
    let folder = masters[0].directory();
    let list = urls(&masters);
    for name in ["connect", "response"] {
        let settings = format!("{name}_timeout = \"61s\"");
        configure(folder, &self::list(&masters), &settings);
        let variable = format!("QUORLOCK_{}_TIMEOUT", name.to_uppercase());
        let option = format!("--{name}-timeout 63s");
        for (options, list, seconds) in [
            ("", "", 61),
            ("", &*list, 62),
            (&*option, "", 63),
            (&option, &list, 63),
        ] {
            let mut command = at(folder, &format!("{options} status job"));
            command.env(&variable, "62s").env("QUORLOCK_MASTERS", list);
            let expected = format!("a {name} timeout of {seconds}s is out of range");
            ended(&mut command).is(78).says(&expected);
        }
    }
}

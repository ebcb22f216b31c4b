//! The programs that are connected with the masters, by the names of their connections.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::ask::Checker;
use crate::{
    core::{
        protocol::connection_name::ConnectionName,
        vote::{Failure, lists::Membership, lists_id::ListsId, roster::Roster},
    },
    master::{probe::ProbeError, question::Question, server_error::without_user},
};

/// The programs that are connected with one master, as the master shows them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MasterPrograms {
    /// The ID of the master's [group](crate::Builder::groups). `None` if there are no groups.
    pub group: Option<Arc<str>>,
    /// The address of the master.
    pub master: Arc<str>,
    /// The part that the master has in a change of the masters.
    pub membership: Membership,
    /// The programs, or the reason why the master does not show them.
    pub programs: Result<Vec<Program>, String>,
}

/// The connections of one program with one master. Programs that say the same about themselves are
/// shown as one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Program {
    /// The lists of masters that the program uses. `None` if it says nothing of them: it is no
    /// program of this crate, an older one, or one whose user may not name its connections.
    pub lists: Option<ListsId>,
    /// The [client name](crate::Builder::client_name) of the program, if it has one. For a program
    /// that says nothing of its lists, the name of the connection.
    pub client: Option<String>,
    /// The number of its connections with the master.
    pub connections: usize,
    /// The age of the oldest of these connections, in whole seconds.
    pub age: Duration,
}

impl Checker {
    /// Asks the masters of the `roster` which programs are connected. `ours` is the name of the own
    /// connections.
    pub(crate) async fn programs(
        &self,
        roster: &Roster,
        ours: &ConnectionName,
    ) -> Vec<MasterPrograms> {
        let answers = self.each(|probe| async move {
            let mut interview = probe.dial().await?;
            let answer = interview.ask(&[Question::Connections]).await.remove(0)?;
            Ok(answer.unwrap_or_default())
        });
        let answers = answers.await.into_iter().enumerate();
        let programs = answers.map(|(number, (master, answer))| MasterPrograms {
            group: roster.group.clone(),
            master,
            membership: roster.quorum.membership(number),
            programs: answer.map_err(why).and_then(|text| programs(&text, ours)),
        });
        programs.collect()
    }
}

fn why(error: ProbeError) -> String {
    match error {
        ProbeError::Failed(Failure::Rejected(error)) => without_user(&error),
        error => error.to_string(),
    }
}

/// Returns the programs in the text of `CLIENT LIST`, without replicas and connections that
/// have sent nothing. Fails if the own connection has no name: then the same may be true for other
/// programs.
fn programs(text: &str, ours: &ConnectionName) -> Result<Vec<Program>, String> {
    let mut programs = BTreeMap::<&str, Program>::new();
    for line in text.lines() {
        let field = |name: &str| {
            let mut words = line.split(' ');
            words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
        };
        let is_servers = field("flags").is_some_and(|flags| flags.contains(['S', 'M']));
        // A new connection may have a name soon.
        if is_servers || field("cmd") == Some("NULL") {
            continue;
        }
        let name = field("name").unwrap_or_default();
        let age = field("age").and_then(|age| age.parse().ok());
        let age = Duration::from_secs(age.unwrap_or_default());
        let program = programs.entry(name).or_insert_with(|| Program::named(name));
        program.connections += 1;
        program.age = program.age.max(age);
    }
    if !programs.contains_key(&*ours.to_string()) {
        return Err("its user may not name connections: ACL SETUSER <user> +client|setname".into());
    }
    Ok(programs.into_values().collect())
}

impl Program {
    /// Returns a program without connections. `name` is the name that its connections have.
    fn named(name: &str) -> Self {
        let (lists, client) = match ConnectionName::parse(name) {
            Some(ConnectionName { lists, client, .. }) => (Some(lists), client),
            None => (None, (!name.is_empty()).then(|| name.to_owned())),
        };
        Self {
            lists,
            client,
            connections: 0,
            age: Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_one_program_are_counted_together() {
        let ours = ConnectionName::fixture();
        let own = ours.to_string();
        let text = format!(
            "id=3 addr=127.0.0.1:1 name={own} age=0 idle=0 flags=t db=0\n\
             id=4 addr=127.0.0.1:2 name=quorlock:f1bb702098bb38aa:a:b age=7 flags=t\n\
             id=5 addr=127.0.0.1:3 name=quorlock:f1bb702098bb38aa:a:b age=90 flags=P\n\
             id=6 addr=127.0.0.1:4 name= age=1 flags=N\n\
             id=7 addr=127.0.0.1:5 name=sidekiq age=1 flags=N\n\
             id=8 addr=127.0.0.1:6 name= age=1 flags=S\n\
             id=9 addr=127.0.0.1:7 name= age=0 flags=N cmd=NULL\n"
        );
        let expected = [
            (None, None, 1, 1),
            (Some(ours.lists), None, 1, 0),
            (ListsId::parse("f1bb702098bb38aa"), Some("a:b"), 2, 90),
            (None, Some("sidekiq"), 1, 1),
        ];
        let mut programs = programs(&text, &ours).unwrap();
        programs.sort_by_key(|program| program.client.clone());
        let found = programs.iter().map(|program| {
            let Program {
                lists,
                client,
                connections,
                age,
            } = program;
            (*lists, client.as_deref(), *connections, age.as_secs())
        });
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn nothing_is_seen_if_the_own_connection_has_no_name() {
        let text = "id=3 addr=127.0.0.1:1 name= age=0 idle=0 flags=t db=0\n";
        let why = programs(text, &ConnectionName::fixture()).unwrap_err();
        assert!(why.contains("+client|setname"), "{why}");
    }
}

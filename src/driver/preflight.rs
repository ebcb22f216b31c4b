//! Asks masters for the preflight.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::{clock, live_round::LiveRound, masters::Masters};
use crate::{
    check::{self, Asked, Facts, Ours, Preflight, SETTINGS},
    core::{
        command::{Action, Command, Probe},
        name::Resource,
        quorum::{Failure, Vote},
        restart::quarantine,
        round::Round,
    },
    master::CountVotes,
};

struct Inquiry<T, P> {
    round: Arc<LiveRound>,
    parse: P,
    said: Mutex<Vec<Option<T>>>,
}

impl<T: Send, P: Fn(&str) -> Option<T> + Send + Sync> CountVotes for Arc<Inquiry<T, P>> {
    fn note(&self, master: usize, text: &str) {
        if let Some(said) = self.said.lock().get_mut(master) {
            *said = (self.parse)(text);
        }
    }

    fn count(&self, master: usize, vote: Vote, now: Instant) {
        self.round.count(master, vote, now);
    }
}

impl<T: Clone, P> Inquiry<T, P> {
    async fn answers(&self) -> Vec<Result<Option<T>, Failure>> {
        self.round.settled().await;
        let votes = self.round.votes();
        let said = self.said.lock().clone();
        let answers = votes.into_iter().zip(said);
        answers
            .map(|(cast, said)| match cast.map(|cast| cast.vote) {
                Some(Vote::Fail(failure)) => Err(failure),
                Some(Vote::Grant | Vote::Refuse(_)) | None => Ok(said),
            })
            .collect()
    }
}

pub(super) async fn check(masters: &Masters) -> Preflight {
    let nobodys = masters.config().key_template.nobodys();
    let mut seen = look(masters, &nobodys).await;
    tokio::time::sleep(Duration::from_millis(2)).await;
    for (master, later) in seen.iter_mut().zip(look(masters, &nobodys).await) {
        if let (Ok(facts), Ok(later)) = (&mut master.facts, later.facts) {
            facts.compare(&later);
        }
    }
    let config = masters.config();
    let ours = Ours {
        guard: config.restart_guard,
        is_durable: config.durable_masters,
        quarantine: quarantine(config.max_ttl, config.drift),
        ttl: config.ttl.duration(),
        node_timeout: masters.node_timeout(),
        drift: config.drift,
    };
    check::check(&seen, &ours)
}

async fn look(masters: &Masters, nobodys: &Resource) -> Vec<Asked> {
    let asked = clock::wall_micros();
    let parse = move |text: &str| Some(Facts::parse(text, asked, clock::wall_micros()));
    let counter = nobodys.counter();
    let facts = inquire(masters, Probe::Facts { counter }, nobodys, parse);
    let value = |text: &str| Some(text.to_owned());
    let settings =
        SETTINGS.map(|name| (name, inquire(masters, Probe::Setting(name), nobodys, value)));
    let all = masters.addresses().iter().zip(facts.answers().await);
    let all = all.map(|(address, facts)| Asked {
        address: address.clone(),
        facts: facts.map(Option::unwrap_or_default),
    });
    let mut all: Vec<_> = all.collect();
    for (name, inquiry) in settings {
        for (master, answer) in all.iter_mut().zip(inquiry.answers().await) {
            if let Ok(facts) = &mut master.facts {
                facts.add(name, answer);
            }
        }
    }
    all
}

fn inquire<T: Clone + Send + 'static, P>(
    masters: &Masters,
    probe: Probe,
    resource: &Resource,
    parse: P,
) -> Arc<Inquiry<T, P>>
where
    P: Fn(&str) -> Option<T> + Send + Sync + 'static,
{
    let command = Command::new(resource, Action::Probe(probe));
    let round = Round::open(command.verb(), masters.count(), clock::now(), None);
    let inquiry = Arc::new(Inquiry {
        round: LiveRound::open(round),
        parse,
        said: Mutex::new(vec![None; masters.count()]),
    });
    masters.post(command, inquiry.clone());
    inquiry
}

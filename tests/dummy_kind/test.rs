
#[tokio::test]
async fn a_round_wins_the_slot_that_its_masters_grant() {
    let (log, _listening) = testkit::captured_log::CapturedLog::listen();
    let masters = [(); 3].map(|()| crate::MemoryMaster::new());
    let locks = crate::Coordinator::new(&masters).unwrap();
    let lock = locks.of_kind(crate::LockKind::Dummy, "a", &locks.new_owner());
    let guard = lock.acquire().await.unwrap();
    let votes = guard.all_votes().await.to_string();
    assert_eq!(votes.matches(" granted slot 0").count(), 3, "{votes}");
    let said: Vec<_> = log.take().into_iter().map(|(_, text)| text).collect();
    let is_told = |text: &String| text.contains("lock acquired") && text.contains("slot=0");
    assert!(said.iter().any(is_told), "{said:?}");
}


#[tokio::test]
async fn a_dummy_lock_is_acquired_and_broken() {
    check(&[
        "dummy acquire a 40s: granted, left a=1 dummy=1 mode=quorlock 40s",
        "dummy acquire a 40s: granted, dummy acquire b 40s: held a x1 40s, left a=1 dummy=1 mode=quorlock 40s",
        "dummy acquire a 40s: granted, dummy extend a 80s: granted, left a=1 dummy=1 mode=quorlock 80s",
        "dummy acquire a 40s: granted, dummy release a: granted, left nothing",
        "dummy acquire a 40s: granted, inspect: dummy a x1 40s, left a=1 dummy=1 mode=quorlock 40s",
        "dummy acquire a 40s: granted, dummy break a: granted, left nothing",
        "dummy acquire a 40s: granted, dummy break b: held 40s, left a=1 dummy=1 mode=quorlock 40s",
        "write-hash quorlock:dummy=1 mode=quorlock a=1 b=1 40s, inspect: dummy a x1 40s dummy b x1 40s, dummy break c: held 40s, dummy break a: granted, inspect: dummy b x1 40s, left b=1 dummy=1 mode=quorlock 40s",
        "dummy acquire a 40s: granted, reentrant acquire b 40s: kind, left a=1 dummy=1 mode=quorlock 40s",
    ])
    .await;
}

#[tokio::test]
async fn a_round_wins_the_slot_that_its_masters_grant() {
    let (log, _listening) = testkit::captured_log::CapturedLog::listen();
    let masters = [(); 3].map(|()| crate::MemoryMaster::new());
    let locks = crate::Coordinator::new(&masters).unwrap();
    let lock = locks.of_kind(crate::Kind::Dummy, "a", &locks.owner());
    let guard = lock.acquire().await.unwrap();
    let votes = guard.settled().await.to_string();
    assert_eq!(votes.matches(" granted slot 0").count(), 3, "{votes}");
    let said: Vec<_> = log.take().into_iter().map(|(_, text)| text).collect();
    let is_told = |text: &String| text.contains("lock acquired") && text.contains("slot=0");
    assert!(said.iter().any(is_told), "{said:?}");
}

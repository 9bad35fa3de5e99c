//! What the policy promises: nobody waits for a long prompt, cached work is not done twice, the oldest request always
//! advances, faults stay with their own prefix. On the fake model, step by step.

use mini_engine::engine::fake::{CONTEXT_MAX, FakeModel, POISON};
use mini_engine::engine::{Engine, EngineConfig, Event, Failure, Finish, Refusal, Request, RequestId};

fn engine(change: impl FnOnce(&mut EngineConfig)) -> Engine<FakeModel> {
    let mut config = EngineConfig { page_tokens: 4, pages: 150, step_rows_max: 64, ..EngineConfig::default() };
    change(&mut config);
    Engine::new(FakeModel::new(config.pages, config.page_tokens, 1), config).unwrap()
}

fn request(prompt: impl IntoIterator<Item = u32>, tokens_max: usize) -> Request {
    // Forced, so that no generated token happens to be the poison.
    Request { prompt: prompt.into_iter().collect(), tokens_max, forced: vec![1; tokens_max], ..Request::default() }
}

fn chose(events: &[Event], id: RequestId) -> bool {
    events.iter().any(|event| matches!(event, Event::Token { id: owner, .. } if *owner == id))
}

fn drain(engine: &mut Engine<FakeModel>) -> Vec<Event> {
    let mut all = Vec::new();
    for _ in 0..10_000 {
        if engine.live() == 0 {
            return all;
        }
        all.extend(engine.step().unwrap());
    }
    panic!("the engine does not come to an end");
}

#[test]
fn a_long_prompt_does_not_hold_up_decodes() {
    let mut engine = engine(|config| config.step_rows_max = 5);
    let talking: Vec<RequestId> = (0..3).map(|i| engine.submit(request([i, 2], 40)).unwrap()).collect();
    engine.step().unwrap();
    engine.step().unwrap();
    let long = engine.submit(request((0..60).map(|i| i % 7), 2)).unwrap();
    let mut steps = 0;
    loop {
        let events = engine.step().unwrap();
        assert!(talking.iter().all(|&id| chose(&events, id)), "a decode waited in step {steps}");
        steps += 1;
        if chose(&events, long) {
            break;
        }
    }
    // Two rows a step are left for the prompt.
    assert_eq!(steps, 30);
}

#[test]
fn a_cached_prompt_computes_one_row() {
    let mut engine = engine(|_| {});
    engine.submit(request(0..16, 1)).unwrap();
    drain(&mut engine);
    let before = engine.stats().rows;
    engine.submit(request(0..16, 1)).unwrap();
    drain(&mut engine);
    // The last page is not attached, since the row of the last token gives the next one.
    assert_eq!((engine.stats().rows - before, engine.stats().policy.attached_tokens), (4, 12));
    engine.submit(request(0..17, 1)).unwrap();
    drain(&mut engine);
    assert_eq!((engine.stats().rows - before, engine.stats().policy.attached_tokens), (5, 28));
    engine.submit(Request { bypass_cache: true, ..request(0..17, 1) }).unwrap();
    drain(&mut engine);
    assert_eq!(engine.stats().rows - before, 22);
}

#[test]
fn without_the_cache_nothing_is_attached() {
    let mut engine = engine(|config| config.prefix_cache = false);
    for _ in 0..2 {
        engine.submit(request(0..16, 2)).unwrap();
        drain(&mut engine);
    }
    assert_eq!((engine.stats().rows, engine.stats().policy.attached_tokens), (34, 0));
}

#[test]
fn equal_prompts_of_one_step_are_computed_once() {
    let mut engine = engine(|_| {});
    for _ in 0..3 {
        engine.submit(request(0..17, 1)).unwrap();
    }
    engine.step().unwrap();
    assert_eq!((engine.live(), engine.stats().rows, engine.stats().steps), (0, 19, 1));
}

#[test]
fn what_was_used_last_stays_cached() {
    let mut engine = engine(|config| config.pages = 6);
    for prompt in [0, 20, 0, 40] {
        engine.submit(request(prompt..prompt + 9, 1)).unwrap();
        drain(&mut engine);
    }
    // The last one needed three pages and took those of the second: 0 is still there, 20 is not.
    let attached = engine.stats().policy.attached_tokens;
    engine.submit(request(0..9, 1)).unwrap();
    drain(&mut engine);
    assert_eq!(engine.stats().policy.attached_tokens - attached, 8);
}

#[test]
fn under_pressure_requests_finish_in_the_order_of_their_arrival() {
    let mut engine = engine(|config| config.pages = 6);
    let ids: Vec<RequestId> = (0..5).map(|i| engine.submit(request([i, i, i], 20)).unwrap()).collect();
    let finished: Vec<RequestId> = drain(&mut engine)
        .into_iter()
        .filter_map(|event| matches!(event, Event::Finished { .. }).then(|| event.id()))
        .collect();
    assert_eq!(finished, ids);
    assert!(engine.stats().policy.preemptions > 0);
}

#[test]
fn a_fault_fails_every_request_with_that_prefix_and_no_other() {
    let mut engine = engine(|_| {});
    let poisoned = |tail: u32| request((0..9).chain([POISON, 3, 4, 5, tail]), 3);
    let healthy = engine.submit(request(0..9, 3)).unwrap();
    // The second one attaches the page with the fault in the very step that computes it.
    let failing = [engine.submit(poisoned(1)).unwrap(), engine.submit(poisoned(2)).unwrap()];
    let mut events = drain(&mut engine);
    // Later, the page must not be found.
    let later = engine.submit(poisoned(1)).unwrap();
    events.extend(drain(&mut engine));
    for id in [failing[0], failing[1], later] {
        let own: Vec<&Event> = events.iter().filter(|event| event.id() == id).collect();
        assert_eq!(own, [&Event::Failed { id, failure: Failure::NonFiniteKv { position: 9 } }]);
    }
    let end = events.iter().rfind(|event| event.id() == healthy);
    assert_eq!(end, Some(&Event::Finished { id: healthy, reason: Finish::Length }));
    assert_eq!(engine.stats().failures, 3);
}

#[test]
fn the_context_ends_a_request() {
    let mut engine = engine(|_| {});
    engine.submit(request((0..CONTEXT_MAX as u32 - 3).map(|i| i % 9), 50)).unwrap();
    let tokens = drain(&mut engine).iter().filter(|event| matches!(event, Event::Token { .. })).count();
    assert_eq!(tokens, 3);
    let refusal = engine.submit(request((0..CONTEXT_MAX as u32).map(|i| i % 9), 1)).unwrap_err();
    assert_eq!(refusal, Refusal::PromptTooLong { context_max: CONTEXT_MAX, got: CONTEXT_MAX });
}

#[test]
fn what_can_never_fit_is_refused_and_what_just_fits_runs() {
    let mut engine = engine(|config| config.pages = 3);
    assert!(matches!(engine.submit(request(0..9, 5)), Err(Refusal::PoolTooSmall { needed: 4, pages: 3, .. })));
    assert_eq!((engine.live(), engine.ledger().reqs().len()), (0, 0));
    engine.submit(request(0..9, 4)).unwrap();
    drain(&mut engine);
}

#[test]
fn ledger_entries_are_reused() {
    let mut engine = engine(|_| {});
    for round in 0..50 {
        let ids: Vec<RequestId> = (0..4).map(|i| engine.submit(request([i, round], 3)).unwrap()).collect();
        engine.step().unwrap();
        assert!(engine.cancel(ids[1]));
        drain(&mut engine);
    }
    assert_eq!(engine.ledger().reqs().len(), 4);
    assert!(engine.ledger().pages().iter().all(|page| page.pins == 0));
}

/// An engine ahead of the device: a request that goes on for long, and a poisoned one that leaves while its rows are on their way.
fn poison_in_flight(prompt: &[u32]) -> (Engine<FakeModel>, RequestId) {
    let mut engine = engine(|config| config.run_ahead = true);
    let talking = engine.submit(request([5], 30)).unwrap();
    engine.step().unwrap();
    let leaver = engine.submit(request(prompt.iter().copied(), 3)).unwrap();
    // Launches the step with the prompt, and reports the one before.
    assert!(!engine.step().unwrap().iter().any(|event| event.id() == leaver));
    assert!(engine.cancel(leaver));
    (engine, talking)
}

#[test]
fn a_page_that_changes_hands_takes_no_fault_along() {
    let (mut engine, talking) = poison_in_flight(&[POISON, 2]);
    // The last page that was given back is the first to be taken.
    let heir = engine.submit(request([1, 2, 3], 3)).unwrap();
    let events = drain(&mut engine);
    for id in [talking, heir] {
        assert!(events.contains(&Event::Finished { id, reason: Finish::Length }), "{id:?} did not finish");
    }
    assert_eq!(engine.stats().failures, 0);
}

#[test]
fn a_page_whose_fault_comes_late_is_not_offered() {
    let prompt = [1, POISON, 2, 3, 4];
    let (mut engine, _) = poison_in_flight(&prompt);
    engine.step().unwrap();
    let equal = engine.submit(request(prompt, 3)).unwrap();
    let failed = Event::Failed { id: equal, failure: Failure::NonFiniteKv { position: 1 } };
    assert!(drain(&mut engine).contains(&failed), "its own prefix is not finite");
}

#[test]
fn whoever_attached_a_page_before_its_fault_was_known_fails_too() {
    let prompt = [1, POISON, 2, 3, 4];
    let (mut engine, _) = poison_in_flight(&prompt);
    // Planned before the step with the fault has landed, so that the page is found.
    let equal = engine.submit(request(prompt, 3)).unwrap();
    let events = engine.step().unwrap();
    assert_eq!(engine.stats().policy.attached_tokens, 4);
    assert!(events.contains(&Event::Failed { id: equal, failure: Failure::NonFiniteKv { position: 1 } }));
}

#[test]
fn ahead_of_the_device_a_request_that_ends_costs_a_row_and_no_more() {
    let run = |run_ahead| {
        let mut engine = engine(|config| config.run_ahead = run_ahead);
        let ids = [(3, 40), (9, 25)].map(|(start, tokens)| engine.submit(request([start, 4], tokens)).unwrap());
        // Nobody knows beforehand that the second request stops here.
        let stops = Request { stop_tokens: (0..63).collect(), ..request([7, 8], 40) };
        let stops = engine.submit(Request { forced: Vec::new(), ..stops }).unwrap();
        let mut of: [Vec<Event>; 3] = Default::default();
        for event in drain(&mut engine) {
            let index = [ids[0], ids[1], stops].iter().position(|&id| id == event.id()).unwrap();
            of[index].push(event);
        }
        (of, engine.stats())
    };
    let ((plain, before), (ahead, after)) = (run(false), run(true));
    assert_eq!(plain, ahead, "each request's own events are the same");
    assert!(plain[2].len() == 2 && before.steps_ahead == 0 && before.rows_dropped == 0);
    assert!(after.steps_ahead > 30);
    assert_eq!((after.rows_dropped, after.rows), (1, before.rows + 1));
}

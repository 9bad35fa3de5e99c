//! What a user of the ledger relies on, function by function.

use ledger::{
    Launch, Ledger, Op, Watch, admit, aligned, commit, create, draft, finish, kv_len, readmit, reset, resolve, serve,
    step, truncate, unpin,
};

const PAGE: usize = 4;

/// One operation as a step of its own. These leave the ledger unchanged when they are refused.
fn one(l: &mut Ledger, op: Op) -> bool {
    step(l, &mut Vec::new(), &[op])
}

fn attach(l: &mut Ledger, r: usize, p: u32) -> bool {
    one(l, Op::Attach(r, p))
}

fn grow(l: &mut Ledger, r: usize, p: u32) -> bool {
    one(l, Op::Grow(r, p))
}

fn adopt(l: &mut Ledger, p: u32, q: u32) -> bool {
    one(l, Op::Adopt(p, q))
}

/// A ledger in which request 0 has computed `prompt` in the pages 0, 1, ...
fn prefilled(prompt: &[u32]) -> Ledger {
    let mut l = create(PAGE, 6);
    let r = admit(&mut l, prompt);
    let mut ops = Vec::new();
    for (page, chunk) in prompt.chunks(PAGE).enumerate() {
        ops.extend([Op::Grow(r, page as u32), Op::Fill(r, chunk.len())]);
    }
    assert!(step(&mut l, &mut Vec::new(), &ops));
    l
}

#[test]
fn rows_name_position_token_and_slot() {
    let mut l = create(PAGE, 3);
    let r = admit(&mut l, &[10, 11, 12, 13, 14]);
    let mut rows = Vec::new();
    assert!(step(&mut l, &mut rows, &[Op::Grow(r, 2), Op::Fill(r, 4), Op::Grow(r, 0), Op::Fill(r, 1)]));
    let slots: Vec<usize> = rows.iter().map(|g| g.slot).collect();
    assert_eq!(slots, [8, 9, 10, 11, 0]);
    assert_eq!(rows[4], Launch { req: r, pos: 4, tok: 14, slot: 0, sample: true });
    assert!(rows[..4].iter().all(|g| !g.sample));
    assert_eq!(l.reqs()[r].table, [2, 0]);
    assert_eq!(kv_len(&l, r), 5);
}

#[test]
fn a_prefix_hit_needs_equal_tokens_and_an_equal_chain() {
    let mut l = prefilled(&[1, 2, 3, 4, 5, 6, 7, 8]);
    let other = admit(&mut l, &[1, 2, 3, 4, 5, 6, 7, 9]);
    assert!(!attach(&mut l, other, 1), "page 1 continues page 0, not the empty sequence");
    assert!(attach(&mut l, other, 0));
    assert_eq!(l.pages()[0].pins, 2);
    assert!(!attach(&mut l, other, 1), "the last token differs");
    let short = admit(&mut l, &[1, 2, 3]);
    assert!(!attach(&mut l, short, 0), "the page is longer than the request");
    let exact = admit(&mut l, &[1, 2, 3, 4]);
    assert!(!attach(&mut l, exact, 0), "the last token's row gives the next token, so it is computed");
}

#[test]
fn a_partial_page_is_not_shared() {
    let mut l = prefilled(&[1, 2, 3]);
    let r = admit(&mut l, &[1, 2, 3, 4]);
    assert!(!attach(&mut l, r, 0));
}

#[test]
fn a_pinned_page_is_not_evicted_and_a_partial_last_page_blocks_growth() {
    let mut l = prefilled(&[1, 2, 3]);
    let r = admit(&mut l, &[9]);
    assert!(!grow(&mut l, r, 0));
    assert!(!aligned(&l, 0));
    assert!(!grow(&mut l, 0, 1), "page 0 is not full");
    assert!(unpin(&mut l, 0));
    assert!(grow(&mut l, r, 0));
    assert!(l.pages()[0].toks.is_empty());
}

#[test]
fn commit_needs_every_token_computed() {
    let mut l = create(PAGE, 2);
    let r = admit(&mut l, &[1, 2]);
    assert!(!commit(&mut l, r, 2, 3));
    assert!(step(&mut l, &mut Vec::new(), &[Op::Grow(r, 0), Op::Fill(r, 2)]));
    assert!(!commit(&mut l, r, 1, 3) && !commit(&mut l, r, 3, 3), "2 is the next position");
    assert!(commit(&mut l, r, 2, 3));
    assert!(!commit(&mut l, r, 3, 4), "3 has not been computed yet");
    assert_eq!(l.reqs()[r].toks, [1, 2, 3]);
}

#[test]
fn equal_pages_share_a_chain_after_adoption() {
    let mut l = prefilled(&[1, 2, 3, 4, 5, 6, 7, 8]);
    // the same prompt computed again, as when both prefills ran side by side
    let r = admit(&mut l, &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert!(step(&mut l, &mut Vec::new(), &[Op::Grow(r, 2), Op::Fill(r, 4)]));
    assert!(!attach(&mut l, r, 1), "page 1 continues page 0's chain id");
    assert!(!adopt(&mut l, 2, 1));
    assert!(adopt(&mut l, 2, 0));
    assert!(attach(&mut l, r, 1));
    assert_eq!(kv_len(&l, r), 8);
}

#[test]
fn finished_entries_are_reused_and_hold_no_memory() {
    let mut l = prefilled(&[1, 2, 3, 4]);
    assert!(!readmit(&mut l, 0, &[7]), "still live");
    assert!(finish(&mut l, 0));
    assert!(l.reqs()[0].toks.is_empty() && l.reqs()[0].table.is_empty());
    assert!(!grow(&mut l, 0, 1) && !commit(&mut l, 0, 0, 1) && !one(&mut l, Op::Fill(0, 1)));
    assert!(readmit(&mut l, 0, &[1, 2, 3, 4, 5]));
    assert_eq!(l.reqs().len(), 1);
    assert!(attach(&mut l, 0, 0), "the finished request's page is still cached");
    assert!(!readmit(&mut l, 5, &[7]), "no such entry");
}

#[test]
fn a_refused_plan_is_followed_by_reset() {
    let mut l = prefilled(&[1, 2, 3, 4]);
    let mut rows = Vec::new();
    assert!(!step(&mut l, &mut rows, &[Op::Grow(0, 1), Op::Fill(0, 1)]), "nothing is left to fill");
    let next = l.next_cid();
    reset(&mut l);
    assert_eq!(l.next_cid(), next, "chain ids are never given twice");
    assert!(l.pages().iter().all(|p| p.pins == 0 && p.toks.is_empty()));
    assert_eq!(l.reqs()[0].toks, [1, 2, 3, 4]);
    assert_eq!(kv_len(&l, 0), 0);
}

#[test]
fn numbers_out_of_range_are_refused() {
    let mut l = create(PAGE, 2);
    let r = admit(&mut l, &[1]);
    assert!(!grow(&mut l, r, 2) && !grow(&mut l, r + 1, 0));
    assert!(!attach(&mut l, r, 2) && !attach(&mut l, r + 1, 0));
    assert!(!adopt(&mut l, 0, 2) && !adopt(&mut l, 2, 0));
    assert!(!one(&mut l, Op::Fill(r + 1, 1)) && !commit(&mut l, r + 1, 0, 0));
    assert!(!draft(&mut l, r + 1, 0) && !truncate(&mut l, r + 1, 0));
    assert!(!unpin(&mut l, r + 1) && !finish(&mut l, r + 1));
    assert!(!step(&mut l, &mut Vec::new(), &[Op::Fill(r, 1)]), "no page yet");
}

#[test]
#[should_panic(expected = "psize > 0")]
fn a_page_of_no_tokens_is_rejected() {
    create(0, 4);
}

#[test]
#[should_panic(expected = "overflow")]
fn a_pool_larger_than_the_address_space_is_rejected() {
    create(usize::MAX, 2);
}

/// The rows of a step that is accepted.
fn rows_of(l: &mut Ledger, ops: &[Op]) -> Vec<Launch> {
    let mut rows = Vec::new();
    assert!(step(l, &mut rows, ops));
    rows
}

#[test]
fn drafts_are_verified_and_the_rejected_ones_dropped() {
    // what the model says after each position of 1, 2, 7, 8, 5, 6: the draft model guesses 7, 8, 9
    let mut l = create(PAGE, 4);
    let r = admit(&mut l, &[1, 2]);
    rows_of(&mut l, &[Op::Grow(r, 0), Op::Fill(r, 1)]);
    for guess in [7, 8, 9] {
        assert!(draft(&mut l, r, guess));
    }
    assert_eq!((l.reqs()[r].sure, l.reqs()[r].toks.len()), (2, 5));
    let rows = rows_of(&mut l, &[Op::Fill(r, 3), Op::Grow(r, 1), Op::Fill(r, 1)]);
    // the last certain token and the three guesses each give a token
    assert_eq!(
        rows.iter().map(|g| (g.pos, g.tok, g.sample)).collect::<Vec<_>>(),
        [(1, 2, true), (2, 7, true), (3, 8, true), (4, 9, true)]
    );
    // the rows sampled 7, 8, 5, and something that nobody wants
    assert!(commit(&mut l, r, 2, 7) && commit(&mut l, r, 3, 8));
    assert!(!commit(&mut l, r, 4, 5), "the guess was 9");
    assert!(!truncate(&mut l, r, 3), "what is certain stays");
    assert!(truncate(&mut l, r, 4));
    assert_eq!(
        (kv_len(&l, r), l.reqs()[r].toks.as_slice(), l.reqs()[r].table.as_slice()),
        (4, &[1, 2, 7, 8][..], &[0][..])
    );
    assert!(commit(&mut l, r, 4, 5));
    assert!(!commit(&mut l, r, 5, 6), "the row after the wrong guess says nothing: 5 is not computed yet");
    // and on: the page that was given back can be had again, and position 4 is computed with the right token
    let rows = rows_of(&mut l, &[Op::Grow(r, 1), Op::Fill(r, 1)]);
    assert_eq!((rows[0].pos, rows[0].tok, rows[0].slot, rows[0].sample), (4, 5, PAGE, true));
    assert!(commit(&mut l, r, 5, 6));
}

#[test]
fn a_cut_page_forgets_its_tail_and_nothing_else() {
    let mut l = create(PAGE, 3);
    let r = admit(&mut l, &[1]);
    for guess in [2, 3, 4] {
        assert!(draft(&mut l, r, guess));
    }
    rows_of(&mut l, &[Op::Grow(r, 0), Op::Fill(r, 4)]);
    assert!(truncate(&mut l, r, 2));
    assert_eq!((l.pages()[0].toks.as_slice(), l.reqs()[r].toks.as_slice()), (&[1, 2][..], &[1, 2][..]));
    let other = admit(&mut l, &[1, 2, 3, 4, 5]);
    assert!(!attach(&mut l, other, 0), "no longer full");
    // the same guess again, then another one: the slot is written anew
    assert!(draft(&mut l, r, 9));
    assert_eq!(rows_of(&mut l, &[Op::Fill(r, 1)])[0].slot, 2);
    assert!(!truncate(&mut l, r, 4) && truncate(&mut l, r, 3), "only guesses that there are can be dropped");
}

#[test]
fn a_page_that_another_request_reads_is_not_cut() {
    let mut l = create(PAGE, 3);
    let r = admit(&mut l, &[1, 2]);
    assert!(draft(&mut l, r, 3) && draft(&mut l, r, 4));
    rows_of(&mut l, &[Op::Grow(r, 0), Op::Fill(r, 4)]);
    // the other request has for certain what this one only guesses
    let other = admit(&mut l, &[1, 2, 3, 4, 5]);
    assert!(attach(&mut l, other, 0));
    assert!(!truncate(&mut l, r, 3));
    assert_eq!(l.pages()[0].toks, [1, 2, 3, 4]);
    // giving the pages back always works; what is certain is then computed again
    assert!(unpin(&mut l, r) && truncate(&mut l, r, 3));
    assert_eq!((kv_len(&l, r), kv_len(&l, other)), (0, 4));
    assert!(rows_of(&mut l, &[Op::Grow(r, 1), Op::Fill(r, 3)]).iter().all(|g| g.slot / PAGE == 1));
}

#[test]
fn a_guess_can_be_adopted_and_dropped_beside_its_twin() {
    let mut l = create(PAGE, 4);
    let a = admit(&mut l, &[1, 2, 3, 4, 5]);
    rows_of(&mut l, &[Op::Grow(a, 0), Op::Fill(a, 4), Op::Grow(a, 1), Op::Fill(a, 1)]);
    let b = admit(&mut l, &[1]);
    for guess in [2, 3, 4] {
        assert!(draft(&mut l, b, guess));
    }
    rows_of(&mut l, &[Op::Grow(b, 2), Op::Fill(b, 4), Op::Adopt(2, 0)]);
    assert!(truncate(&mut l, b, 1));
    let c = admit(&mut l, &[1, 2, 3, 4, 5, 6]);
    assert!(!attach(&mut l, c, 2) && attach(&mut l, c, 0), "the twin still holds the chain");
    assert_eq!(l.pages()[2].toks, [1]);
}

#[test]
fn a_step_is_checked_before_its_token_is_known() {
    // names above the vocabulary stand for tokens that the device is still computing
    let (mut l, name) = (create(PAGE, 2), 1_000_000);
    let r = admit(&mut l, &[1, 2]);
    rows_of(&mut l, &[Op::Grow(r, 0), Op::Fill(r, 2)]);
    assert!(commit(&mut l, r, 2, name));
    let rows = rows_of(&mut l, &[Op::Fill(r, 1)]);
    assert_eq!((rows[0].pos, rows[0].tok, rows[0].sample), (2, name, true));
    assert!(commit(&mut l, r, 3, name + 1));
}

/// Serves the oldest of two requests with the same proposal until it has `count` tokens; the turns that it took.
fn turns(l: &mut Ledger, oldest: usize, count: usize, preempt: &[usize], ops: &[Op]) -> usize {
    let mut watch = Watch { age: 9, alone: true };
    for turn in 1.. {
        let mut rows = Vec::new();
        assert!(serve(l, &mut rows, &mut watch, 0, oldest, preempt, ops));
        assert!(!rows.is_empty());
        for g in rows.iter().filter(|g| g.sample) {
            assert!(commit(l, g.req, g.pos + 1, 7));
        }
        if l.reqs()[oldest].toks.len() == count {
            return turn;
        }
        assert!(turn <= 2 * count, "no end in sight");
    }
    unreachable!()
}

#[test]
fn whatever_is_proposed_the_oldest_request_ends() {
    let proposals: [(&[usize], &[Op]); 6] = [
        (&[], &[]),
        (&[0], &[]),
        (&[0, 0, 5], &[Op::Fill(0, 1)]),
        (&[0], &[Op::Grow(1, 0), Op::Fill(1, 1)]),
        (&[1], &[Op::Grow(0, 0), Op::Fill(0, 1)]),
        (&[], &[Op::Grow(9, 9), Op::Attach(0, 0), Op::Adopt(7, 7)]),
    ];
    for (preempt, ops) in proposals {
        let mut l = create(PAGE, 2);
        let oldest = admit(&mut l, &[1, 2, 3, 4, 5]);
        let other = admit(&mut l, &[1, 2, 3, 4, 6]);
        rows_of(&mut l, &[Op::Grow(other, 0), Op::Fill(other, 4), Op::Grow(other, 1), Op::Fill(other, 1)]);
        // the pool holds 8 tokens, the last one generated is not computed: 9 is all there can be
        assert!(turns(&mut l, oldest, 9, preempt, ops) <= 2 * 8 + 1);
    }
}

#[test]
fn a_good_proposal_is_followed_and_a_bad_one_is_the_last() {
    let mut l = create(PAGE, 4);
    let (r, other) = (admit(&mut l, &[1, 2, 3]), admit(&mut l, &[4]));
    let (mut watch, mut rows) = (Watch { age: 0, alone: false }, Vec::new());
    assert!(serve(
        &mut l,
        &mut rows,
        &mut watch,
        0,
        r,
        &[],
        &[Op::Grow(r, 3), Op::Fill(r, 2), Op::Grow(other, 1), Op::Fill(other, 1)]
    ));
    assert_eq!((rows.len(), watch.alone), (3, false));
    rows.clear();
    // the other request alone: accepted, but the oldest must not be passed over
    assert!(commit(&mut l, other, 1, 5));
    assert!(serve(&mut l, &mut rows, &mut watch, 0, r, &[], &[Op::Fill(other, 1)]));
    assert_eq!((rows.len(), rows[0].req, watch.alone), (1, other, true));
    rows.clear();
    assert!(serve(&mut l, &mut rows, &mut watch, 0, r, &[], &[Op::Fill(other, 1)]));
    assert_eq!((rows.len(), rows[0].req, rows[0].pos), (1, r, 2));
    assert!(l.reqs()[other].table.is_empty(), "it is served alone");
    // the next request that is the oldest starts with a clean slate
    assert!(finish(&mut l, r));
    rows.clear();
    assert!(serve(&mut l, &mut rows, &mut watch, 1, other, &[], &[Op::Grow(other, 2), Op::Fill(other, 2)]));
    assert_eq!((rows.len(), rows[0].slot, watch.alone), (2, 2 * PAGE, false));
    // its token was not taken, so a proposal finds nothing to do: all is computed again, and then there is nothing left
    for pos in [Some(0), Some(1), None] {
        rows.clear();
        assert_eq!(serve(&mut l, &mut rows, &mut watch, 1, other, &[], &[]), pos.is_some());
        assert_eq!(rows.first().map(|g| g.pos), pos);
    }
    assert!(!serve(&mut l, &mut rows, &mut watch, 2, 7, &[], &[]), "no such entry");
}

#[test]
fn a_name_gives_way_to_its_token() {
    const NAME: u32 = 1 << 30;
    let mut l = create(PAGE, 4);
    let r = admit(&mut l, &[1, 2, 3]);
    let mut rows = Vec::new();
    assert!(step(&mut l, &mut rows, &[Op::Grow(r, 0), Op::Fill(r, PAGE - 1)]));
    assert!(commit(&mut l, r, 3, NAME));
    // the row behind the name is computed before the name is known
    rows.clear();
    assert!(step(&mut l, &mut rows, &[Op::Fill(r, 1)]));
    assert_eq!((rows[0].tok, rows[0].pos, rows[0].sample), (NAME, 3, true));
    for (entry, position, name) in [(r, 2, NAME), (r, 4, NAME), (r, 3, NAME + 1), (r + 1, 3, NAME)] {
        assert!(!resolve(&mut l, entry, position, name, 9), "no such name there");
    }
    assert_eq!(l.pages()[0].toks, [1, 2, 3, NAME]);
    assert!(resolve(&mut l, r, 3, NAME, 9));
    assert_eq!(
        (l.reqs()[r].toks.as_slice(), l.pages()[0].toks.as_slice()),
        ([1, 2, 3, 9].as_slice(), [1, 2, 3, 9].as_slice())
    );
    // a later prompt with the token finds the page
    let s = admit(&mut l, &[1, 2, 3, 9, 5]);
    rows.clear();
    assert!(step(&mut l, &mut rows, &[Op::Attach(s, 0), Op::Grow(s, 2), Op::Fill(s, 1)]));
    // one whose page was given back resolves in the history alone
    assert!(commit(&mut l, r, 4, NAME + 1) && unpin(&mut l, r) && resolve(&mut l, r, 4, NAME + 1, 6));
    assert_eq!(l.reqs()[r].toks, [1, 2, 3, 9, 6]);
    assert!(finish(&mut l, r) && !resolve(&mut l, r, 0, 1, 2), "a finished request has no names");
}

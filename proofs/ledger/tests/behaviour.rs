//! What a user of the ledger relies on, function by function.

use ledger::{
    Launch, Ledger, Op, Watch, admit, aligned, commit, create, draft, finish, kv_len, readmit, reset, serve, step, truncate,
    unpin,
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
    let r = admit(&mut l, &[1, 2, 3, 4, 5, 6, 7, 8]);
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

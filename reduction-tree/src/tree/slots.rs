//! The order of a fold's carried values: their structure decides, not the order in which a program lists them.

use super::rewrite::rewrite;
use super::{Fold, Node, Slot, Tree};

/// The fold with its slots in canonical order, equal ones merged.
///
/// Slots are told apart by refinement: two of them have one colour at first if they start from one value, and keep one
/// colour as long as their bodies agree once every carried value is replaced by its colour. Slots that keep one colour
/// to the end have equal values after every iteration (by induction over iterations), so one of them stands for all.
pub(super) fn ordered(fold: Fold) -> Fold {
    if fold.slots.len() < 2 {
        return fold;
    }
    let colours = colours(&fold.slots);
    let mut rest: Vec<[u8; 32]> = colours[1..].iter().copied().filter(|c| *c != colours[0]).collect();
    rest.sort_unstable();
    rest.dedup();
    let order: Vec<[u8; 32]> = std::iter::once(colours[0]).chain(rest).collect();

    let place = |slot: usize| order.iter().position(|c| *c == colours[slot]).expect("every colour is in the order");
    let renamed = replace_carried(&fold.slots, &|slot, depth| {
        Tree::raw(Node::Bound { level: depth, slot: 1 + place(slot) as u32 })
    });
    let slot_of = |colour: &[u8; 32]| {
        let i = colours.iter().position(|c| c == colour).expect("every colour is a slot's");
        Slot { init: fold.slots[i].init.clone(), body: renamed[i].clone() }
    };
    Fold { trip: fold.trip, slots: order.iter().map(slot_of).collect() }
}

/// The coarsest stable colouring.
fn colours(slots: &[Slot]) -> Vec<[u8; 32]> {
    let mut colours: Vec<[u8; 32]> = slots.iter().map(|slot| slot.init.id()).collect();
    loop {
        let before = distinct(&colours);
        let marker = |slot: usize, _| {
            let name: String = colours[slot].iter().map(|byte| format!("{byte:02x}")).collect();
            Tree::raw(Node::Opaque(name.into(), vec![]))
        };
        let refined = |(body, own): (&Tree, &[u8; 32])| {
            let mut hasher = blake3::Hasher::new();
            hasher.update(own).update(&body.id());
            hasher.finalize().into()
        };
        let next: Vec<[u8; 32]> = replace_carried(slots, &marker).iter().zip(&colours).map(refined).collect();
        let after = distinct(&next);
        colours = next;
        // One refinement always happens, so that the order knows the bodies.
        if after == before {
            return colours;
        }
    }
}

fn distinct(colours: &[[u8; 32]]) -> usize {
    let mut sorted = colours.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    sorted.len()
}

/// The bodies with their carried values replaced; `f` is told the slot and the number of binders inside the body. They
/// are walked as one tree, so that what they share is walked once.
fn replace_carried(slots: &[Slot], f: &dyn Fn(usize, u32) -> Tree) -> Vec<Tree> {
    let replace = |node: &Node, depth: u32| match node {
        Node::Bound { level, slot } if *level == depth && *slot > 0 => Some(f(*slot as usize - 1, depth)),
        _ => None,
    };
    let together = Tree::raw(Node::Opaque("".into(), slots.iter().map(|slot| slot.body.clone()).collect()));
    let replaced = rewrite(&together, &replace, &|tree, depth| tree.openness() <= depth);
    match replaced.node() {
        Node::Opaque(_, bodies) => bodies.clone(),
        _ => unreachable!("rewriting keeps the operation at the root"),
    }
}

//! The CUDA backend against the evaluator and the CPU backend, by bits: every kernel, every variant of the linear layers.
//!
//! Without a GPU, or built without the `cuda` feature, every test here is counted as ignored; with `SAMETREE_REQUIRE_GPU` set a
//! missing GPU is a failure, so that a lane that means to test one cannot pass without it. `SAMETREE_FEW=20` runs one case in
//! twenty, for compute-sanitizer.

#[cfg(feature = "cuda")]
#[path = "cuda/bodies.rs"]
mod bodies;
#[cfg(feature = "cuda")]
#[allow(dead_code, reason = "the bodies that only the CPU tests use")]
mod common;

use libtest_mimic::{Arguments, Failed, Trial};

/// Why nothing can run.
#[cfg(feature = "cuda")]
fn missing() -> Option<String> {
    bodies::opened().as_ref().err().cloned()
}
#[cfg(not(feature = "cuda"))]
fn missing() -> Option<String> {
    Some("built without the cuda feature".into())
}

/// A trial a body, and the check that none is forgotten.
macro_rules! trials {
    ($($name:ident)*) => {
        fn trials(ignored: bool) -> Vec<Trial> {
            vec![$(
                Trial::test(stringify!($name), || {
                    #[cfg(feature = "cuda")]
                    {
                        bodies::$name();
                        Ok(())
                    }
                    #[cfg(not(feature = "cuda"))]
                    Err(Failed::from("built without the cuda feature"))
                })
                .with_ignored_flag(ignored)
            ),*]
        }

        /// Every body without arguments in `bodies.rs` is in the list.
        fn every_body_is_listed() -> Result<(), Failed> {
            let declared: Vec<&str> = include_str!("cuda/bodies.rs")
                .split("\npub fn ")
                .skip(1)
                .filter_map(|rest| rest.split_once("() {").map(|(name, _)| name))
                .filter(|name| !name.contains('('))
                .collect();
            let listed = [$(stringify!($name)),*];
            if declared == listed { Ok(()) } else { Err(format!("declared {declared:?}, listed {listed:?}").into()) }
        }
    };
}

trials! {
    linear
    embed
    random_weight
    rmsnorm
    add_rmsnorm
    gather_wanted
    sample
    qkv_and_attention
    qkv_and_attention_of_plans
    qkv_and_portable_attention
    long_contexts_by_the_portable_kernel
    negative_zero
    refusals
    every_linear_variant
    alone_equals_inside_a_batch_and_a_batch_dependent_split_is_caught
    probed_trees_are_the_declared_ones
    wgmma_of_every_width_is_the_soft_tensor_core
}

fn main() {
    let arguments = Arguments::from_args();
    let missing = missing();
    if let Some(reason) = &missing {
        if std::env::var_os("SAMETREE_REQUIRE_GPU").is_some() {
            eprintln!("SAMETREE_REQUIRE_GPU is set, but: {reason}");
            std::process::exit(1);
        }
        eprintln!("GPU tests are ignored: {reason}");
    }
    let mut trials = trials(missing.is_some());
    trials.push(Trial::test("every_body_is_listed", every_body_is_listed));
    libtest_mimic::run(&arguments, trials).exit();
}

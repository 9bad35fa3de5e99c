//! Stands in for `cuda.rs` when the workspace is built without the `cuda` feature, so that a test run counts the GPU tests it
//! did not run.
#![cfg(not(feature = "cuda"))]

/// Declares one ignored test for each GPU test, and a test that none is forgotten.
macro_rules! skipped {
    ($($name:ident)*) => {
        $(
            #[test]
            #[ignore = "needs a GPU: cargo test -p kernels-rs --features cuda --test cuda"]
            fn $name() {
                panic!("built without the cuda feature");
            }
        )*

        #[test]
        fn every_gpu_test_is_counted() {
            let source = include_str!("cuda.rs");
            let declared: Vec<&str> = source
                .split("#[test]\nfn ")
                .skip(1)
                .filter_map(|rest| rest.split_once('(').map(|(name, _)| name))
                .collect();
            assert_eq!(declared, [$(stringify!($name)),*]);
        }
    };
}

skipped! {
    linear
    embed
    rmsnorm
    gather_rows
    sample
    qkv_and_attention
    qkv_and_attention_of_plans
    qkv_and_portable_attention
    negative_zero
    refusals
    every_linear_variant
    alone_equals_inside_a_batch_and_a_batch_dependent_split_is_caught
    probed_trees_are_the_declared_ones
    wgmma_of_every_width_is_the_soft_tensor_core
}

use kernels_macro::kernels;

kernels! {
    inline_source = r#"
#define V(NAME, ROWS, TOKENS, CHUNKS) \
  extern "C" __global__ void __launch_bounds__(128, 1) \
      NAME(const __grid_constant__ CUtensorMap w, const LinearParams p) { f<ROWS, TOKENS, CHUNKS>(w, p); }
V(one_small, 32, 8, 1)
V(one_large, 64, 64, 1)
V(two_small, 32, 8, 2)
"#;
    family Linear = V(w: TensorMap, p: LinearParams) {
        tree = "linear; chunks = {CHUNKS}";
        threads = 128;
        grid = 1;
        shared = ROWS * 9223372036854775807;
    }
    dispatch pick of Linear by tokens {
        1..=8 => one_small,
        9..=64 => one_large,
    }
}

fn main() {}

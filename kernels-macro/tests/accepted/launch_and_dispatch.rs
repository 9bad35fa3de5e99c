//! A family with a dispatch, used with a mock device.
use kernels_macro::kernels;

pub struct TensorMap;
pub struct LinearParams;
pub struct Grid {
    pub blocks: u32,
    pub threads: u32,
    pub shared_bytes: u32,
}
pub type Result<T> = std::result::Result<T, String>;
pub struct Device;
impl Device {
    fn function(&self, name: &str) -> Result<String> {
        Ok(name.to_string())
    }
    unsafe fn launch(&self, operation: &str, function: String, grid: Grid, arguments: &mut [*mut std::ffi::c_void]) -> Result<()> {
        Err(format!("{operation} {function} {} {} {} {}", grid.blocks, grid.threads, grid.shared_bytes, arguments.len()))
    }
}

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
        shared_min = ROWS * 128;
    }
    dispatch pick of Linear by tokens {
        1..=8 => one_small,
        9..=64 => one_large,
    }
}

fn main() {
    assert_eq!(Linear::ALL.len(), 3);
    assert_eq!((Linear::ONE_LARGE.rows, Linear::ONE_LARGE.tokens, Linear::ONE_LARGE.threads), (64, 64, 128));
    assert_eq!(Linear::ONE_SMALL.tree, Linear::ONE_LARGE.tree);
    assert_ne!(Linear::ONE_SMALL.tree, Linear::TWO_SMALL.tree);
    assert_eq!(pick(8).map(|v| v.name), Some("one_small"));
    assert_eq!(pick(9).map(|v| v.name), Some("one_large"));
    assert!(pick(0).is_none() && pick(65).is_none());
    // SAFETY: the mock launches nothing.
    let told = unsafe { Linear::ONE_SMALL.launch(&Device, "test", 7, 4096, &TensorMap, &LinearParams) };
    assert_eq!(told, Err("test one_small 7 128 4096 2".to_string()));
}

//! A family with a dispatch, used with a mock device.
use kernels_macro::kernels;

pub struct TensorMap;
pub struct LinearParams;
pub struct Grid {
    pub blocks: u32,
    pub threads: u32,
    pub shared_bytes: u32,
}
impl Grid {
    fn checked(operation: &str, blocks: Option<u64>, threads: u32, shared: Option<u64>) -> Result<Self> {
        let fits = |value: Option<u64>| value.and_then(|v| u32::try_from(v).ok()).ok_or(format!("{operation}: too large"));
        Ok(Self { blocks: fits(blocks)?, threads, shared_bytes: fits(shared)? })
    }
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
extern "C" __global__ void __launch_bounds__(256) rows(const float *x, unsigned n) { f(x, n); }
"#;
    family Linear = V(w: TensorMap, p: LinearParams) {
        tree = "linear; chunks = {CHUNKS}";
        threads = 128;
        sizes(n, m, stages);
        grid = ceil(n, ROWS) * max(1, min(ceil(m, TOKENS), 4));
        shared = stages * ROWS * 128 + (if CHUNKS > 1 { 512 } else { 0 });
        shared_min = ROWS * 128;
    }
    kernel Rows = rows(x: u64, n: u32) {
        tree = "rows";
        threads = 256;
        grid = 3;
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
    let launch = |variant: &Linear, n, m, stages| {
        // SAFETY: the mock launches nothing.
        unsafe { variant.launch(&Device, "test", LinearSizes { n, m, stages }, &TensorMap, &LinearParams) }
    };
    assert_eq!(launch(&Linear::ONE_SMALL, 100, 17, 2), Err("test one_small 12 128 8192 2".to_string()));
    assert_eq!(launch(&Linear::TWO_SMALL, 100, 800, 2), Err("test two_small 16 128 8704 2".to_string()));
    // Arithmetic that overflows, and a grid past 32 bits, are refused and not wrapped.
    assert_eq!(launch(&Linear::ONE_SMALL, usize::MAX, 17, 2), Err("test: too large".to_string()));
    assert_eq!(launch(&Linear::ONE_SMALL, 1 << 40, 17, 2), Err("test: too large".to_string()));
    assert_eq!(launch(&Linear::ONE_SMALL, 100, 17, usize::MAX), Err("test: too large".to_string()));
    // SAFETY: the mock launches nothing.
    let told = unsafe { Rows::ROWS.launch(&Device, "test", &7u64, &1u32) };
    assert_eq!(told, Err("test rows 3 256 0 2".to_string()));
}

use kernels_macro::kernels;

kernels! {
    inline_source = r#"
extern "C" __global__ void __launch_bounds__(256) rows(const float *x, unsigned n) { f(x, n); }
"#;
    kernel Rows = rows(x: u64, n: u32) {
        tree = "rows";
        threads = 128;
        sizes(n);
        grid = ceil(n, 256);
    }
}

fn main() {}

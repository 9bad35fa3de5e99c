//! Linear layers: weights in the layout that the kernels read, and the choice of a variant.
//!
//! The choice reads the number of rows and the weight's shape. It cannot reach a bit: every variant realises the tree that
//! the weight was made for.

use std::sync::{Arc, PoisonError};

use cudarc::driver::CudaSlice;
use half::bf16;
use kernels_cuda::params::{
    LinearParams, SAMETREE_EPILOGUE_BIAS, SAMETREE_EPILOGUE_NONE, SAMETREE_EPILOGUE_RESIDUAL,
    SAMETREE_EPILOGUE_SILU_MUL,
};
use reduction_tree::operator::{Epilogue, LinearTree, Store};

use super::device::{Device, SHARED_BYTES_MAX, driver};
use super::launch::{Boxes, Grid, TensorMap, size, tensor_map};
use crate::backend::{Error, RandomTensor, Result};

/// A weight on the device.
pub struct LinearWeight {
    /// Its tree.
    pub tree: LinearTree,
    memory: Arc<CudaSlice<u16>>,
    bias: Option<Arc<CudaSlice<u16>>>,
    /// Rows as stored: gate and up rows interleaved by eight and padded for `SiluMul`.
    n_rows: u32,
    /// Elements from one stored row to the next: K padded to 64.
    pub pitch: u32,
    chunks: u32,
}

mod stream {
    //! The kernels of `sm90_linear_stream.cu`, read from it.
    use super::{Device, Grid, LinearParams, Result, TensorMap};

    kernels_macro::kernels! {
        source = "../kernels-cuda/kernels/sm90_linear_stream.cu";
        /// Stages that the barriers of a ring are laid out for.
        constant STREAM_STAGES_MAX = "../kernels-cuda/include/linear_stream.cuh";
        /// Shared memory of all barriers.
        constant STREAM_BARRIER_BYTES = "../kernels-cuda/include/linear_stream.cuh";
        /// Few tokens: the weights are streamed once.
        family Stream = STREAM_VARIANT(weight: TensorMap, x: TensorMap, p: LinearParams) {
            symbol "Consumer::MmaSync" = 0;
            symbol "Consumer::Wgmma" = 1;
            tree = "linear: chunks of k16 chains from +0, added left to right; chunks = {LOCAL * CLUSTER}";
            threads = LOCAL * (if CONSUMER == 1 { TOKENS / 16 } else { ROWS / 16 }) * 32 + 64;
            sizes(clusters, stages, x_rows, buffers);
            grid = clusters * CLUSTER;
            // The ring; behind it barriers and the chunks' sums, or what wgmma reads past the rows that were loaded.
            shared = 1024 + stages * LOCAL * STEP * (ROWS + x_rows) * 128
                + max(
                    CONSUMER * (TOKENS - x_rows) * 128,
                    STREAM_BARRIER_BYTES + buffers * (if LOCAL > 1 { 2 * TOKENS * (ROWS + 4) * 4 } else { (CLUSTER - 1) * ROWS * TOKENS * 2 })
                );
            shared_min = 1024 + STREAM_BARRIER_BYTES + 2 * LOCAL * STEP * (ROWS + TOKENS) * 128
                + (if LOCAL > 1 { 2 * TOKENS * (ROWS + 4) * 4 } else { (CLUSTER - 1) * ROWS * TOKENS * 2 });
        }
        /// One chunk, weights of few rows.
        dispatch one_chunk_narrow of Stream by tokens {
            1..=16 => linear_mma_r32_t16_c1,
            17..=64 => linear_wgmma_r64_t64_c1,
            65..=128 => linear_wgmma_r192_t128_c1,
        }
        /// One chunk, weights of many rows.
        dispatch one_chunk_wide of Stream by tokens {
            1..=8 => linear_mma_r112_t8_c1,
            9..=16 => linear_mma_r112_t16_c1,
            17..=32 => linear_mma_r112_t32_c1,
            33..=64 => linear_wgmma_r112_t64_c1,
            65..=128 => linear_wgmma_r224_t128_c1,
        }
        /// Two chunks, tiles of 32 and 64 rows.
        dispatch two_chunks_narrow of Stream by tokens {
            1..=8 => linear_mma_r32_t8_c2,
            9..=16 => linear_mma_r32_t16_c2,
            17..=64 => linear_wgmma_r64_t64_c2_s2,
            65..=128 => linear_wgmma_r64_t128_c2,
        }
        /// Two chunks, tiles of 48 and 96 rows.
        dispatch two_chunks_wide of Stream by tokens {
            1..=8 => linear_mma_r48_t8_c2,
            9..=16 => linear_mma_r48_t16_c2,
            17..=64 => linear_wgmma_r96_t64_c2_s2,
            65..=128 => linear_wgmma_r96_t128_c2,
        }
    }
}
use stream::{Stream, StreamSizes};

impl Stream {
    fn wgmma(&self) -> bool {
        self.consumer == 1
    }

    /// Stages of the ring for `x_rows` loaded rows of x, `buffers` for the chunks' sums and `work` stages in all.
    fn stages(&self, x_rows: u32, buffers: u32, work: u32) -> u32 {
        let stage = self.local * self.step * (self.rows + x_rows) * 128;
        let sums = match (self.local, self.cluster) {
            (2, _) => 2 * self.tokens * (self.rows + 4) * 4,
            (_, 2) => self.rows * self.tokens * 2,
            _ => 0,
        };
        let read_past = if self.wgmma() { (self.tokens - x_rows) * 128 } else { 0 };
        let fixed = 1024 + (stream::STREAM_BARRIER_BYTES + buffers * sums).max(read_past);
        (SHARED_BYTES_MAX.saturating_sub(fixed) / stage).min(stream::STREAM_STAGES_MAX).min(work)
    }

    /// Weight rows that the busiest processor streams, with what each tile costs besides: narrow tiles pay more for barriers.
    fn cost(&self, device: &Device, n_rows: u32) -> u32 {
        waves(n_rows.div_ceil(self.rows), device.processors / self.cluster) * (self.rows + 4)
    }
}

mod tiled {
    //! The kernels of `sm90_linear_tiled.cu`, read from it.
    use super::{Device, Grid, LinearParams, Result, TensorMap};

    kernels_macro::kernels! {
        source = "../kernels-cuda/kernels/sm90_linear_tiled.cu";
        /// Many tokens. A chunked kernel takes the number of chunks from its parameters, the others have one.
        family Tiled = TILED_VARIANT(weight: TensorMap, x: TensorMap, y: TensorMap, residual: TensorMap, p: LinearParams) {
            symbol "Bf16" = 0;
            symbol "F32" = 1;
            symbol "SiluMul" = 2;
            tree = "linear: chunks of k16 chains from +0, added left to right; any chunks = {CHUNKED}";
            threads = 384;
            // Groups of CLUSTER_M x CLUSTER_N neighbouring tiles.
            sizes(groups, processors);
            grid = min(groups, processors / (CLUSTER_M * CLUSTER_N)) * (CLUSTER_M * CLUSTER_N);
            shared = 1280 + STAGES * (128 + COLUMNS) * 128 + STAGED * COLUMNS * 256;
        }
    }
}
use tiled::{Tiled, TiledSizes};

mod portable {
    //! The kernels of `portable_linear.cu`, read from it.
    use super::{Device, Grid, LinearParams, Result};

    kernels_macro::kernels! {
        source = "../kernels-cuda/kernels/portable_linear.cu";
        /// Weight rows of a tile.
        constant ROWS = "../kernels-cuda/kernels/portable_linear.cu";
        /// Stages of the ring.
        constant STAGES = "../kernels-cuda/kernels/portable_linear.cu";
        /// Any card, any number of chunks.
        family Portable = PORTABLE_VARIANT(p: LinearParams) {
            tree = "linear: chunks of k16 chains from +0, added left to right; any chunks = 1";
            threads = 128;
            sizes(n_rows, m);
            grid = ceil(n_rows, ROWS) * ceil(m, TOKENS);
            shared = STAGES * (TOKENS + ROWS) * 128;
        }
        /// Rows at a pitch that 16-byte loads can read.
        kernel PadRows = pad_rows(x: u64, out: u64, rows: u32, k: u32, pitch: u32) {
            tree = "none: rows are copied";
            threads = 256;
            sizes(elements);
            grid = min(ceil(elements, 256), 4096);
        }
    }
}
use portable::{PadRows, PadRowsSizes, Portable, PortableSizes};

mod random {
    //! The kernel of `random.cu` and its launch.
    use super::{Device, Grid, Result};

    kernels_macro::kernels! {
        source = "../kernels-cuda/kernels/random.cu";
        /// Weights by counters.
        kernel RandomWeight = random_weight(
            stored: u64, stored_rows: u32, k: u32, pitch: u32, pairs: u32, seed_low: u32, seed_high: u32, first_end: u32,
            second_end: u32, first: u32, second: u32, third: u32, spread: f32
        ) {
            tree = "none: each value by itself";
            threads = 256;
            sizes(vectors, processors);
            grid = min(ceil(vectors, 256), processors * 16);
        }
    }
}
use random::{RandomWeight, RandomWeightSizes};

/// One way of computing a linear layer.
#[derive(Clone, Copy)]
enum Choice {
    Stream(&'static Stream),
    Tiled(&'static Tiled),
    Portable(&'static Portable),
}

impl Choice {
    fn name(self) -> &'static str {
        match self {
            Self::Stream(variant) => variant.name,
            Self::Tiled(variant) => variant.name,
            Self::Portable(variant) => variant.name,
        }
    }
}

fn waves(tiles: u32, slots: u32) -> u32 {
    tiles.div_ceil(slots.max(1))
}

/// Rows and pitch of a weight as it is stored, after a check of everything but its values.
fn layout(operation: &'static str, tree: &LinearTree, bias: Option<&[bf16]>) -> Result<(usize, usize)> {
    if tree.n == 0 || tree.k == 0 || tree.k_split == 0 {
        return Err(Error::new(operation, "n, k and k_split above 0", format!("{tree:?}")));
    }
    if bias.map(<[bf16]>::len) != (tree.epilogue == Epilogue::Bias).then_some(tree.n) {
        let got = bias.map_or("no bias".into(), |b| format!("a bias of {} elements", b.len()));
        return Err(Error::new(operation, format!("the bias that {:?} asks for", tree.epilogue), got));
    }
    let silu = tree.epilogue == Epilogue::SiluMul;
    if silu && !tree.n.is_multiple_of(2) {
        return Err(Error::new(operation, "an even n for SiluMul", tree.n.to_string()));
    }
    let n_rows = if silu { (tree.n / 2).div_ceil(8).checked_mul(16) } else { Some(tree.n) };
    let pitch = tree.k.div_ceil(64).checked_mul(64);
    let fits =
        |&(n_rows, pitch): &(usize, usize)| n_rows.checked_mul(pitch).is_some_and(|t| t <= isize::MAX as usize / 2);
    let addressable = n_rows.zip(pitch).filter(fits);
    addressable.ok_or_else(|| Error::new(operation, "an addressable weight", format!("{tree:?}")))
}

impl LinearWeight {
    /// Uploads `weight` [n, k] and `bias` [n].
    pub fn new(device: &Device, tree: LinearTree, weight: &[bf16], bias: Option<&[bf16]>) -> Result<Self> {
        const OP: &str = "linear_weight";
        let (n_rows, pitch) = layout(OP, &tree, bias)?;
        if tree.n.checked_mul(tree.k) != Some(weight.len()) {
            return Err(Error::new(
                OP,
                format!("a weight of {} x {}", tree.n, tree.k),
                format!("{} elements", weight.len()),
            ));
        }
        let silu = tree.epilogue == Epilogue::SiluMul;
        let mut stored = Vec::new();
        let total = n_rows * pitch;
        stored.try_reserve_exact(total).map_err(|e| Error::new(OP, "host memory for the weight", e.to_string()))?;
        for row in 0..n_rows {
            // Rows 16b..16b+8 are gates 8b.., the next eight their up projections.
            let (pair, up) = (row / 16 * 8 + row % 8, row / 8 % 2);
            let source = if !silu { Some(row) } else { (pair < tree.n / 2).then_some(pair + up * (tree.n / 2)) };
            if let Some(source) = source {
                stored.extend(weight[source * tree.k..(source + 1) * tree.k].iter().map(|x| x.to_bits()));
            }
            stored.resize((row + 1) * pitch, 0);
        }
        let memory = Arc::new(device.stream.clone_htod(&stored).map_err(driver(OP))?);
        Self::stored(device, OP, tree, memory, (n_rows, pitch), bias)
    }

    /// A weight whose rows are the random tensors `parts`, made on the device; `check_random_parts` has passed.
    pub fn random(
        device: &Device,
        tree: LinearTree,
        parts: &[(RandomTensor, usize)],
        bias: Option<&[bf16]>,
    ) -> Result<Self> {
        const OP: &str = "random_weight";
        let (n_rows, pitch) = layout(OP, &tree, bias)?;
        let memory = Arc::new(device.stream.alloc_zeros::<u16>(n_rows * pitch).map_err(driver(OP))?);
        let (mut ends, mut tensors, mut end) = ([0u32; 3], [0u32; 3], 0);
        for (i, (tensor, rows)) in parts.iter().enumerate() {
            end += rows;
            ends[i..].fill(size(OP, "n", end)?);
            tensors[i] = tensor.tensor;
        }
        let RandomTensor { seed, spread, .. } = parts[0].0;
        let (low, high) = (seed as u32, (seed >> 32) as u32);
        let (rows, k, wide) = (size(OP, "n", n_rows)?, size(OP, "k", tree.k)?, size(OP, "k", pitch)?);
        let pairs = if tree.epilogue == Epilogue::SiluMul { size(OP, "n", tree.n / 2)? } else { 0 };
        let sizes = RandomWeightSizes { vectors: n_rows * pitch / 8, processors: device.processors as usize };
        let (out, [first_end, second_end, _], [first, second, third]) = (device.address(&memory), ends, tensors);
        // SAFETY: the memory holds `n_rows` rows of `pitch` elements.
        unsafe {
            RandomWeight::RANDOM_WEIGHT.launch(
                device,
                OP,
                sizes,
                &out,
                &rows,
                &k,
                &wide,
                &pairs,
                &low,
                &high,
                &first_end,
                &second_end,
                &first,
                &second,
                &third,
                &spread,
            )?;
        }
        // Kernels may read weights before their predecessors are done.
        device.stream.synchronize().map_err(driver(OP))?;
        Self::stored(device, OP, tree, memory, (n_rows, pitch), bias)
    }

    fn stored(
        device: &Device,
        operation: &'static str,
        tree: LinearTree,
        memory: Arc<CudaSlice<u16>>,
        (n_rows, pitch): (usize, usize),
        bias: Option<&[bf16]>,
    ) -> Result<Self> {
        let bias = bias.map(|b| b.iter().map(|x| x.to_bits()).collect::<Vec<_>>());
        let bias = bias.map(|b| device.stream.clone_htod(&b).map(Arc::new).map_err(driver(operation))).transpose()?;
        let chunks = size(operation, "chunks", tree.chunks().count())?;
        let (n_rows, pitch) = (size(operation, "n", n_rows)?, size(operation, "k", pitch)?);
        Ok(Self { tree, memory, bias, n_rows, pitch, chunks })
    }

    /// Device address of the rows, for the embedding.
    pub fn address(&self, device: &Device) -> u64 {
        device.address(&self.memory)
    }

    /// Device address of the rows, for measurements of other libraries on the same weight.
    pub fn address_of(&self, cuda: &super::Cuda) -> u64 {
        self.address(&cuda.device)
    }

    /// Names of every variant that can compute this weight for `rows` tokens, the preferred one first.
    pub fn variants(&self, device: &Device, rows: usize) -> Vec<&'static str> {
        self.choices(device, rows).into_iter().map(Choice::name).collect()
    }

    fn choices(&self, device: &Device, rows: usize) -> Vec<Choice> {
        let m = u32::try_from(rows).unwrap_or(u32::MAX);
        let mut choices = Vec::new();
        if device.hopper {
            let mut streams: Vec<_> = Stream::ALL.iter().filter(|v| self.fits_stream(v, m)).collect();
            streams.sort_by_key(|v| (v.tokens, v.cost(device, self.n_rows), u32::MAX - v.rows, u32::MAX - v.step));
            // The tuned variant for this many tokens comes first.
            let classes = match self.chunks {
                1 => [stream::one_chunk_narrow(m), stream::one_chunk_wide(m)],
                _ => [stream::two_chunks_narrow(m), stream::two_chunks_wide(m)],
            };
            let tuned = classes.into_iter().flatten().filter(|v| self.fits_stream(v, m));
            if let Some(best) = tuned.min_by_key(|v| v.cost(device, self.n_rows)) {
                streams.sort_by_key(|v| v.name != best.name);
            }
            let mut tiles: Vec<_> = Tiled::ALL.iter().filter(|v| self.fits_tiled(v)).collect();
            // One variant must not follow the number of rows.
            let m = if device.one_variant { 4096 } else { m };
            tiles.sort_by_key(|v| {
                let groups = self.n_rows.div_ceil(v.columns * v.cluster_n) * m.div_ceil(128 * v.cluster_m);
                // A narrow tile reads more of x for each product: 24 columns' worth of time a tile. Of equals, those are faster
                // that share W, since L2 is asked for the same x by several processors at once and answers once (measured).
                let cost = waves(groups, device.processors / (v.cluster_m * v.cluster_n)) * (v.columns + 24);
                (cost, u32::MAX - v.cluster_m, v.columns)
            });
            // Two tiles of 128 tokens in one wave: the chunks in parallel blocks read x and W less often than narrow tiles do.
            let parallel = |v: &Stream| {
                let blocks = m.div_ceil(v.tokens) * self.n_rows.div_ceil(v.rows) * v.cluster;
                m > 128 && v.rows == 128 && blocks <= device.processors
            };
            streams.sort_by_key(|v| !parallel(v));
            let first = streams.iter().take_while(|v| parallel(v)).count();
            // Past 128 tokens, and from about five waves of 128 tokens on, the tiled kernels' wider tiles win (measured).
            let wide = m > 64 && self.n_rows > 65_536 && !tiles.is_empty();
            let leading = if m > 128 || wide { first } else { streams.len() };
            let mut streams = streams.into_iter().map(Choice::Stream);
            choices.extend(streams.by_ref().take(leading));
            choices.extend(tiles.into_iter().map(Choice::Tiled));
            choices.extend(streams);
        }
        let mut portable: Vec<_> = Portable::ALL.iter().collect();
        portable.sort_by_key(|v| if m <= 16 { v.tokens } else { u32::MAX - v.tokens });
        choices.extend(portable.into_iter().map(Choice::Portable));
        choices
    }

    fn fits_stream(&self, v: &Stream, m: u32) -> bool {
        // Tiles of 128 tokens may be several; past that the tiled kernels are better at it.
        let rows = m <= v.tokens || (v.wgmma() && v.tokens == 128 && m <= 512);
        let fits = v.local * v.cluster == self.chunks && rows;
        // Outputs are stored in pairs.
        let whole_stages = !v.wgmma() || (self.tree.chunk_len() / 64).is_multiple_of(v.step as usize);
        fits && whole_stages && self.tree.outputs().is_multiple_of(2)
    }

    fn fits_tiled(&self, v: &Tiled) -> bool {
        let tail = match (self.tree.epilogue, self.tree.store) {
            (Epilogue::SiluMul, Store::Bf16) => Some(2),
            (Epilogue::None, Store::F32) => Some(1),
            (_, Store::Bf16) => Some(0),
            _ => None,
        };
        Some(v.tail) == tail && (v.chunked == 1 || self.chunks == 1) && self.tree.outputs().is_multiple_of(8)
    }

    /// y [rows, outputs] by the preferred variant, or by the one called `forced`.
    ///
    /// # Safety
    /// `x` [rows, k], `y` [rows, outputs] and, if not 0, `residual` [rows, outputs] are device addresses of this backend.
    pub unsafe fn run(
        &self,
        device: &Device,
        rows: usize,
        x: u64,
        residual: u64,
        y: u64,
        forced: Option<&str>,
    ) -> Result<()> {
        const OP: &str = "linear";
        if rows == 0 {
            return Ok(());
        }
        let m = size(OP, "rows", rows)?;
        let choices = self.choices(device, rows);
        let wanted = |c: &&Choice| forced.is_none_or(|name| c.name() == name);
        let choice = choices.iter().find(wanted).copied();
        let choice = choice
            .ok_or_else(|| Error::new(OP, "a variant that fits the weight", forced.unwrap_or("none").to_string()))?;
        let k = size(OP, "k", self.tree.k)?;
        let _exclusive = device.exclusive.lock().unwrap_or_else(PoisonError::into_inner);
        // The streaming kernels take x in whole blocks of K.
        let unit = if matches!(choice, Choice::Stream(_)) { 64 } else { 8 };
        // SAFETY: the caller vouches for `x`.
        let (x, x_pitch) = unsafe { aligned_rows(device, x, m, k, unit)? };
        let mut p = LinearParams {
            y: y as *mut _,
            bias: self.bias.as_ref().map_or(std::ptr::null(), |b| device.address(b) as *const u16),
            residual: residual as *const u16,
            weight: device.address(&self.memory) as *const u16,
            x: x as *const u16,
            m,
            n_rows: self.n_rows,
            n_out: size(OP, "n", self.tree.outputs())?,
            k,
            weight_pitch: self.pitch,
            x_pitch,
            k_split: self.chunks,
            chunk_blocks: size(OP, "k", self.tree.chunk_len() / 64)?,
            epilogue: match self.tree.epilogue {
                Epilogue::None => SAMETREE_EPILOGUE_NONE,
                Epilogue::Bias => SAMETREE_EPILOGUE_BIAS,
                Epilogue::Residual => SAMETREE_EPILOGUE_RESIDUAL,
                Epilogue::SiluMul => SAMETREE_EPILOGUE_SILU_MUL,
            },
            store_f32: u32::from(self.tree.store == Store::F32),
            tiles_n: 0,
            tiles_m: 1,
            x_rows_loaded: 0,
            stages: 0,
        };
        // SAFETY: the parameters describe this weight and the caller's buffers.
        unsafe {
            match choice {
                Choice::Stream(variant) => self.launch_stream(device, variant, &mut p),
                Choice::Tiled(variant) => self.launch_tiled(device, variant, &mut p),
                Choice::Portable(variant) => self.launch_portable(device, variant, &mut p),
            }
        }
    }

    unsafe fn launch_stream(&self, device: &Device, v: &Stream, p: &mut LinearParams) -> Result<()> {
        const OP: &str = "linear";
        p.tiles_n = self.n_rows.div_ceil(v.rows);
        p.tiles_m = p.m.div_ceil(v.tokens);
        p.x_rows_loaded = if v.wgmma() && p.tiles_m == 1 { p.m.div_ceil(8) * 8 } else { v.tokens };
        let tiles = size(OP, "tiles", p.tiles_n as usize * p.tiles_m as usize)?;
        let clusters = tiles.min(device.processors / v.cluster);
        let buffers = if tiles > clusters { 2 } else { 1 };
        let work = tiles.div_ceil(clusters) * p.chunk_blocks.div_ceil(v.step);
        p.stages = v.stages(p.x_rows_loaded, buffers, work);
        let weight = tensor_map(OP, p.weight as u64, Boxes::blocks(self.n_rows, self.pitch, v.rows, v.step))?;
        let x = tensor_map(OP, p.x as u64, Boxes::blocks(p.m, p.x_pitch, p.x_rows_loaded, v.step))?;
        let [clusters, stages, x_rows, buffers] = [clusters, p.stages, p.x_rows_loaded, buffers].map(|v| v as usize);
        // SAFETY: the maps and the parameters describe this weight and the caller's buffers.
        unsafe { v.launch(device, OP, StreamSizes { clusters, stages, x_rows, buffers }, &weight, &x, p) }
    }

    unsafe fn launch_tiled(&self, device: &Device, v: &Tiled, p: &mut LinearParams) -> Result<()> {
        const OP: &str = "linear";
        p.tiles_n = self.n_rows.div_ceil(v.columns);
        p.tiles_m = p.m.div_ceil(128);
        let groups = p.tiles_n.div_ceil(v.cluster_n) as usize * p.tiles_m.div_ceil(v.cluster_m) as usize;
        size(OP, "tiles", groups * (v.cluster_m * v.cluster_n) as usize)?;
        let weight = Boxes::operand([self.n_rows, self.pitch], self.pitch, v.columns / v.cluster_m);
        let weight = tensor_map(OP, p.weight as u64, weight)?;
        let x = tensor_map(OP, p.x as u64, Boxes::operand([p.m, p.k], p.x_pitch, 128 / v.cluster_n))?;
        let output = |address: u64| tensor_map(OP, address, Boxes::output([p.m, p.n_out]));
        // Only a staged kernel reads the last two, and the residual only where there is one.
        let y = if v.staged == 1 { output(p.y as u64)? } else { x };
        let residual = if v.staged == 1 && !p.residual.is_null() { output(p.residual as u64)? } else { x };
        let sizes = TiledSizes { groups, processors: device.processors as usize };
        // SAFETY: as in `launch_stream`.
        unsafe { v.launch(device, OP, sizes, &weight, &x, &y, &residual, p) }
    }

    unsafe fn launch_portable(&self, device: &Device, v: &Portable, p: &mut LinearParams) -> Result<()> {
        p.tiles_n = self.n_rows.div_ceil(portable::ROWS);
        p.tiles_m = p.m.div_ceil(v.tokens);
        let sizes = PortableSizes { n_rows: self.n_rows as usize, m: p.m as usize };
        // SAFETY: the parameters describe this weight and the caller's buffers.
        unsafe { v.launch(device, "linear", sizes, p) }
    }
}

/// Rows of `k` elements at a pitch that is a multiple of `unit`: as they are, or copied to scratch memory and padded with
/// zeros.
unsafe fn aligned_rows(device: &Device, x: u64, rows: u32, k: u32, unit: u32) -> Result<(u64, u32)> {
    const OP: &str = "linear";
    if k.is_multiple_of(unit) {
        return Ok((x, k));
    }
    let pitch = k.div_ceil(unit) * unit;
    let elements = rows as usize * pitch as usize;
    let out = device.workspace(OP, "padded rows", elements * 2)?;
    // SAFETY: `x` holds rows x k elements by the caller's word, `out` rows x pitch.
    unsafe { PadRows::PAD_ROWS.launch(device, OP, PadRowsSizes { elements }, &x, &out, &rows, &k, &pitch)? };
    Ok((out, pitch))
}

// Parameter structs that cross the border between Rust and CUDA. Plain C, so that bindgen and nvcc read one text.
// Pointers are device addresses. Sizes are elements unless a name says otherwise.
#ifndef SAMETREE_PARAMS_H
#define SAMETREE_PARAMS_H

#ifdef __cplusplus
#define SAMETREE_POINTER(type) type *__restrict__
#else
#define SAMETREE_POINTER(type) type *
#endif

// What happens to the f32 sum of a linear layer. Values of LinearParams.epilogue.
enum SametreeEpilogue {
  SAMETREE_EPILOGUE_NONE = 0,
  SAMETREE_EPILOGUE_BIAS = 1,
  SAMETREE_EPILOGUE_RESIDUAL = 2,
  // Weight rows are interleaved by eight: rows 16b..16b+8 gate, 16b+8..16b+16 up.
  SAMETREE_EPILOGUE_SILU_MUL = 3
};

// y [m, n_out] = epilogue(x [m, k] · Wᵀ). W has n_rows rows (padded to whole pairs of eight for silu·mul).
struct LinearParams {
  SAMETREE_POINTER(void) y;
  SAMETREE_POINTER(const unsigned short) bias;      // [n_out] bf16, or null
  SAMETREE_POINTER(const unsigned short) residual;  // [m, n_out] bf16, or null
  SAMETREE_POINTER(const unsigned short) weight;    // [n_rows, weight_pitch] bf16, for the kernels without tensor maps
  SAMETREE_POINTER(const unsigned short) x;         // [m, x_pitch] bf16, likewise
  unsigned m;
  unsigned n_rows;
  unsigned n_out;
  unsigned k;             // elements of a row of x and W that are read; the rest counts as zero
  unsigned weight_pitch;
  unsigned x_pitch;
  unsigned k_split;       // chunks
  unsigned chunk_blocks;  // blocks of 64 elements of K in every chunk
  unsigned epilogue;
  unsigned store_f32;
  unsigned tiles_n;
  unsigned tiles_m;
  unsigned x_rows_loaded;  // rows of x that a stage holds: a multiple of 8
  unsigned stages;
};

// The paged KV memory of one layer. Cell (page, head, K or V, half, slot) is 64 elements = 128 bytes; its eight 16-byte
// units are permuted by xor with (absolute position mod 8), which is the 128-byte swizzle of the tensor cores once a tile
// starts at a multiple of eight.
struct KvLayer {
  SAMETREE_POINTER(unsigned short) base;
  unsigned pages;
  unsigned page_tokens;
  unsigned kv_heads;
  unsigned head_dim;  // real elements of a head; cells are padded with zeros to 64 * halves
  unsigned halves;    // 1 or 2
};

// One block of query rows of one sequence: `rows` consecutive tokens, all heads of each group.
struct QueryBlock {
  unsigned first_row;       // index of its first row in the step
  unsigned rows;
  unsigned first_position;  // absolute position of the first row; the others follow
  unsigned table_offset;    // where its block table starts in `tables`
};

struct AttentionParams {
  SAMETREE_POINTER(const unsigned short) q;  // [rows, q_heads, head_dim] bf16
  SAMETREE_POINTER(unsigned short) out;      // the same shape
  SAMETREE_POINTER(const struct QueryBlock) blocks;
  SAMETREE_POINTER(const unsigned) tables;     // concatenated block tables: physical pages
  SAMETREE_POINTER(float) partial;             // decode: states of the splits
  SAMETREE_POINTER(unsigned) arrived;          // decode: splits that are done, one counter a (block, kv head), zero between launches
  struct KvLayer kv;
  unsigned block_count;
  unsigned q_heads;
  unsigned group;     // query heads a KV head
  unsigned kv_split;  // tokens, a multiple of the tile
  unsigned split_max; // most splits that any block of this step sees
  unsigned window;    // 0 means the whole prefix
  float scale_log2;
};

struct RmsNormParams {
  SAMETREE_POINTER(const unsigned short) x;       // [rows, d] bf16
  SAMETREE_POINTER(const unsigned short) weight;  // [d] bf16
  SAMETREE_POINTER(unsigned short) out;           // [rows, d] bf16
  SAMETREE_POINTER(const unsigned short) residual;  // [rows, d] bf16, added to x first, or null
  SAMETREE_POINTER(unsigned short) sum;             // [rows, d] bf16: x + residual, or null
  unsigned rows;
  unsigned d;
  float eps;
};

// out [rows, d] = table[index[i]]; row pitch of the table in elements.
struct GatherParams {
  SAMETREE_POINTER(const unsigned short) table;
  SAMETREE_POINTER(const unsigned) index;  // [rows]
  SAMETREE_POINTER(unsigned short) out;
  unsigned rows;
  unsigned d;
  unsigned table_pitch;
};

struct QkvStageParams {
  SAMETREE_POINTER(const unsigned short) qkv;      // [rows, (q_heads + 2 kv_heads) * head_dim] bf16
  SAMETREE_POINTER(unsigned short) q;              // [rows, q_heads * head_dim] bf16
  SAMETREE_POINTER(const unsigned short) q_weight;  // [head_dim] bf16, or null: no norm of q and k
  SAMETREE_POINTER(const unsigned short) k_weight;  // [head_dim] bf16
  SAMETREE_POINTER(const float) cos;               // [positions, head_dim / 2]
  SAMETREE_POINTER(const float) sin;
  SAMETREE_POINTER(const unsigned) positions;  // [rows]
  SAMETREE_POINTER(const unsigned) slots;      // [rows]
  SAMETREE_POINTER(unsigned) faults;           // [rows]
  struct KvLayer kv;
  unsigned rows;
  unsigned q_heads;
  unsigned interleaved;  // RoPE pairs (2i, 2i+1) instead of (i, i + d/2)
  float eps_q;
  float eps_k;
};

// One row's sampling parameters as the kernel reads them.
struct SampleRow {
  float temperature;
  float top_p;
  float min_p;
  unsigned top_k;  // 0 keeps all
  unsigned seed_low;
  unsigned seed_high;
  unsigned position;
};

struct SampleParamsGpu {
  SAMETREE_POINTER(const float) logits;  // [rows, vocab]
  SAMETREE_POINTER(const struct SampleRow) rows;
  SAMETREE_POINTER(unsigned) token;
  SAMETREE_POINTER(float) logprob;
  unsigned row_count;
  unsigned vocab;
};

#endif

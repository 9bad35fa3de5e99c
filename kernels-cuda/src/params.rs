//! Parameter structs of the kernels, made from include/params.h by bindings.sh. Do not edit.
#![allow(missing_docs, non_camel_case_types, non_upper_case_globals)]

pub const SAMETREE_EPILOGUE_NONE: SametreeEpilogue = 0;
pub const SAMETREE_EPILOGUE_BIAS: SametreeEpilogue = 1;
pub const SAMETREE_EPILOGUE_RESIDUAL: SametreeEpilogue = 2;
pub const SAMETREE_EPILOGUE_SILU_MUL: SametreeEpilogue = 3;
pub type SametreeEpilogue = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct LinearParams {
    pub y: *mut ::core::ffi::c_void,
    pub bias: *const ::core::ffi::c_ushort,
    pub residual: *const ::core::ffi::c_ushort,
    pub weight: *const ::core::ffi::c_ushort,
    pub x: *const ::core::ffi::c_ushort,
    pub m: ::core::ffi::c_uint,
    pub n_rows: ::core::ffi::c_uint,
    pub n_out: ::core::ffi::c_uint,
    pub k: ::core::ffi::c_uint,
    pub weight_pitch: ::core::ffi::c_uint,
    pub x_pitch: ::core::ffi::c_uint,
    pub k_split: ::core::ffi::c_uint,
    pub chunk_blocks: ::core::ffi::c_uint,
    pub epilogue: ::core::ffi::c_uint,
    pub store_f32: ::core::ffi::c_uint,
    pub tiles_n: ::core::ffi::c_uint,
    pub tiles_m: ::core::ffi::c_uint,
    pub x_rows_loaded: ::core::ffi::c_uint,
    pub stages: ::core::ffi::c_uint,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct KvLayer {
    pub base: *mut ::core::ffi::c_ushort,
    pub pages: ::core::ffi::c_uint,
    pub page_tokens: ::core::ffi::c_uint,
    pub kv_heads: ::core::ffi::c_uint,
    pub head_dim: ::core::ffi::c_uint,
    pub halves: ::core::ffi::c_uint,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct QueryBlock {
    pub first_row: ::core::ffi::c_uint,
    pub rows: ::core::ffi::c_uint,
    pub first_position: ::core::ffi::c_uint,
    pub table_offset: ::core::ffi::c_uint,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct AttentionParams {
    pub q: *const ::core::ffi::c_ushort,
    pub out: *mut ::core::ffi::c_ushort,
    pub blocks: *const QueryBlock,
    pub tables: *const ::core::ffi::c_uint,
    pub partial: *mut f32,
    pub arrived: *mut ::core::ffi::c_uint,
    pub kv: KvLayer,
    pub block_count: ::core::ffi::c_uint,
    pub q_heads: ::core::ffi::c_uint,
    pub group: ::core::ffi::c_uint,
    pub kv_split: ::core::ffi::c_uint,
    pub split_max: ::core::ffi::c_uint,
    pub window: ::core::ffi::c_uint,
    pub scale_log2: f32,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct RmsNormParams {
    pub x: *const ::core::ffi::c_ushort,
    pub weight: *const ::core::ffi::c_ushort,
    pub out: *mut ::core::ffi::c_ushort,
    pub residual: *const ::core::ffi::c_ushort,
    pub sum: *mut ::core::ffi::c_ushort,
    pub rows: ::core::ffi::c_uint,
    pub d: ::core::ffi::c_uint,
    pub eps: f32,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct GatherParams {
    pub table: *const ::core::ffi::c_ushort,
    pub index: *const ::core::ffi::c_uint,
    pub out: *mut ::core::ffi::c_ushort,
    pub rows: ::core::ffi::c_uint,
    pub d: ::core::ffi::c_uint,
    pub table_pitch: ::core::ffi::c_uint,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct QkvStageParams {
    pub qkv: *const ::core::ffi::c_ushort,
    pub q: *mut ::core::ffi::c_ushort,
    pub q_weight: *const ::core::ffi::c_ushort,
    pub k_weight: *const ::core::ffi::c_ushort,
    pub cos: *const f32,
    pub sin: *const f32,
    pub positions: *const ::core::ffi::c_uint,
    pub slots: *const ::core::ffi::c_uint,
    pub faults: *mut ::core::ffi::c_uint,
    pub kv: KvLayer,
    pub rows: ::core::ffi::c_uint,
    pub q_heads: ::core::ffi::c_uint,
    pub interleaved: ::core::ffi::c_uint,
    pub eps_q: f32,
    pub eps_k: f32,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct SampleRow {
    pub temperature: f32,
    pub top_p: f32,
    pub min_p: f32,
    pub top_k: ::core::ffi::c_uint,
    pub seed_low: ::core::ffi::c_uint,
    pub seed_high: ::core::ffi::c_uint,
    pub position: ::core::ffi::c_uint,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct SampleParamsGpu {
    pub logits: *const f32,
    pub rows: *const SampleRow,
    pub token: *mut ::core::ffi::c_uint,
    pub logprob: *mut f32,
    pub row_count: ::core::ffi::c_uint,
    pub vocab: ::core::ffi::c_uint,
}

//! Reports: one line a kernel, the story on request, JSON, SARIF and pictures of trees.

pub mod sarif;
pub mod svg;
pub mod text;

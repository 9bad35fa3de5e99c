//! Reports: one line a kernel, the story on request, JSON, SARIF and pictures of trees.

#[cfg(test)]
pub(crate) mod fixture;
pub mod paired;
pub mod sarif;
pub mod svg;
pub mod text;

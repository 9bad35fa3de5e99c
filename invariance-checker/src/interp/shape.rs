//! Operations that only move elements: where each element of the result comes from.

/// Row-major strides of a shape, in elements.
pub(super) fn strides(shape: &[usize]) -> Vec<usize> {
    let mut out = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        out[i - 1] = out[i] * shape[i];
    }
    out
}

/// For every element of `shape` in row-major order, the sum of index times `step` over the axes.
pub(super) fn offsets(shape: &[usize], step: &[usize]) -> Vec<usize> {
    let mut out = vec![0];
    for (extent, step) in shape.iter().zip(step) {
        out = out.iter().flat_map(|base| (0..*extent).map(move |i| base + i * step)).collect();
    }
    out
}

/// Source of each element of a broadcast.
pub(super) fn broadcast(from: &[usize], to: &[usize]) -> Vec<usize> {
    let steps: Vec<usize> = strides(from).into_iter().zip(from).map(|(s, e)| if *e == 1 { 0 } else { s }).collect();
    offsets(to, &steps)
}

/// Source of each element of a transposition; result axis i is operand axis `order[i]`.
pub(super) fn transpose(from: &[usize], order: &[usize]) -> Vec<usize> {
    let all = strides(from);
    let shape: Vec<usize> = order.iter().map(|o| from[*o]).collect();
    let steps: Vec<usize> = order.iter().map(|o| all[*o]).collect();
    offsets(&shape, &steps)
}

/// Extents before, at and after an axis, as products.
pub(super) fn around(shape: &[usize], axis: usize) -> (usize, usize, usize) {
    (shape[..axis].iter().product(), shape[axis], shape[axis + 1..].iter().product())
}

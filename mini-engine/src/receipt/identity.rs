//! What answers depend on beside the request: weights, tokenizer, trees.

use kernels_rs::backend::Backend;
use reduction_tree::arithmetic::Arithmetic;

use super::Digest;
use super::schema::{OperatorRecord, PlanRecord};
use crate::model::{Model, Plan, Tokenizer};

/// The digests of a loaded model. Two servers with equal identities give equal answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Identity {
    /// Shape and weights.
    pub model: Digest,
    /// Tokenizer.
    pub tokenizer: Digest,
    /// Rounding of matrix products.
    pub arithmetic: Arithmetic,
    /// Trees.
    pub plan: PlanRecord,
}

impl Identity {
    /// The identity of a loaded model.
    pub fn of<B: Backend>(model: &Model<B>, tokenizer: &Tokenizer) -> Self {
        Self {
            model: model.digest().into(),
            tokenizer: tokenizer.digest().into(),
            arithmetic: model.plan().arithmetic,
            plan: PlanRecord::of(model.plan()),
        }
    }
}

impl PlanRecord {
    /// The record of a plan.
    pub fn of(plan: &Plan) -> Self {
        let operators = plan.operators().into_iter().map(|operator| OperatorRecord {
            name: operator.name.to_owned(),
            layers: operator.layers.map(|layers| [layers.start as u32, layers.end as u32]),
            tree: operator.digest.into(),
        });
        Self { digest: plan.digest().into(), operators: operators.collect() }
    }
}

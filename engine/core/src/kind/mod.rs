//! What a node kind is: a config that says what it promises and needs, and that builds the running stage.
//!
//! A kind is one type implementing [`NodeConfig`] and one line in the list of kinds. The compiler sees kinds only
//! through [`Contract`]: ports, fields, references and a [`Role`] with the numbers that its passes reckon with.

mod choice;
mod contract;
mod dataset;
mod node;
mod numbers;
mod port;
mod stage;

pub use choice::{Choice, ChoiceOf};
pub use contract::{Contract, Input, Keeps, LearningRate, Output, Role, Target, Use};
pub use dataset::{DatasetFormat, DatasetSource, MessageMap, OverLong, PromptMap, RowMap, Truth, TruthForm};
pub use node::{AnyConfig, Decoded, Kind, NodeConfig};
pub use numbers::{AboveOne, ByteSize, Finite, Fraction, NonNegative, OpenFraction, Positive, TimeSpan};
pub use port::{Arity, Field, PortType};
pub use stage::{
    AgentLoop, BatchStage, Buffer, Evaluator, GroupStage, GroupTask, Source, Stage, StageError, Trainer, WarmUp,
    WeightSync,
};

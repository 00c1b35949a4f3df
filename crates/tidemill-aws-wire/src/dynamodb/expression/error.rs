//! What can be wrong with an expression. The texts are AWS's own, where they are known.

/// Which parameter an expression came in. AWS names it in front of what is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpressionKind {
    KeyCondition,
    Filter,
    Condition,
    Projection,
}

impl ExpressionKind {
    /// The name of the parameter.
    pub const fn parameter(self) -> &'static str {
        match self {
            Self::KeyCondition => "KeyConditionExpression",
            Self::Filter => "FilterExpression",
            Self::Condition => "ConditionExpression",
            Self::Projection => "ProjectionExpression",
        }
    }
}

/// Why an expression is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    #[error("The expression can not be empty;")]
    Empty,
    #[error("Expression size has exceeded the maximum allowed size; expression size: {0}")]
    TooLong(usize),
    #[error("Syntax error; token: \"{token}\", near: \"{near}\"")]
    Syntax { token: String, near: String },
    #[error("The expression has redundant parentheses;")]
    RedundantParentheses,
    /// AWS has no limit of its own here: its limit of operators comes first.
    #[error("The expression is nested too deeply; nesting depth: {0}")]
    TooDeep(usize),
    // The words of the next three limits are not documented; the limits are.
    #[error("The expression contains too many operators; operator count: {0}")]
    TooManyOperators(usize),
    #[error("The IN operator is provided with too many operands; number of operands: {0}")]
    TooManyOperands(usize),
    #[error("The document path has too many nesting elements; nesting depth: {0}")]
    PathTooDeep(usize),
    #[error("Invalid function name; function: {0}")]
    UnknownFunction(String),
    #[error("The function is not allowed to be used this way in an expression; function: {0}")]
    FunctionMisplaced(String),
    #[error("Attribute name is a reserved keyword; reserved keyword: {0}")]
    Reserved(String),
    #[error("An expression attribute name used in the document path is not defined; attribute name: {0}")]
    UndefinedName(String),
    #[error("An expression attribute value used in expression is not defined; attribute value: {0}")]
    UndefinedValue(String),
    #[error(
        "Incorrect number of operands for operator or function; operator or function: {function}, number of operands: {count}"
    )]
    OperandCount { function: &'static str, count: usize },
    #[error(
        "Incorrect operand type for operator or function; operator or function: {operator}, operand type: {found}"
    )]
    OperandType { operator: &'static str, found: &'static str },
    #[error("Operator or function requires a document path; operator or function: {0}")]
    PathRequired(&'static str),
    #[error("Invalid attribute type name found; type: {0}, valid types: {{B,NULL,SS,BOOL,L,BS,N,NS,S,M}}")]
    UnknownType(String),
    #[error(
        "The first operand must be distinct from the remaining operands for this operator or function; operator: {operator}, first operand: {operand}"
    )]
    SameOperands { operator: &'static str, operand: String },
    #[error(
        "The BETWEEN operator requires same data type for lower and upper bounds; lower bound operand: AttributeValue: {lower}, upper bound operand: AttributeValue: {upper}"
    )]
    BoundTypes { lower: String, upper: String },
    #[error(
        "The BETWEEN operator requires upper bound to be greater than or equal to lower bound; lower bound operand: AttributeValue: {lower}, upper bound operand: AttributeValue: {upper}"
    )]
    BoundOrder { lower: String, upper: String },
    #[error(
        "Two document paths overlap with each other; must remove or rewrite one of these paths; path one: {one}, path two: {two}"
    )]
    Overlap { one: String, two: String },
    #[error(
        "Two document paths conflict with each other; must remove or rewrite one of these paths; path one: {one}, path two: {two}"
    )]
    Conflict { one: String, two: String },
}

impl ExpressionError {
    /// AWS reports the lowest of these, and of several the first in the text.
    pub(super) const fn rank(&self) -> u8 {
        match self {
            Self::Empty | Self::TooLong(_) | Self::Syntax { .. } => 0,
            Self::RedundantParentheses => 1,
            Self::UnknownFunction(_) | Self::FunctionMisplaced(_) => 2,
            Self::Reserved(_) => 3,
            _ => 4,
        }
    }
}

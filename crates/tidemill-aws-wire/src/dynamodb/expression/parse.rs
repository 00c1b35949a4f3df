//! Reading expressions: from text to what is checked.
//!
//! The text is bounded before it is read, and so is how deep its parentheses stand, so no input reaches far into the stack.
//! AWS reports what is wrong by kind first and by place second, so the whole text is read, and what would be reported is kept.

use std::sync::Arc;

use super::condition::{Comparator, ItemCondition, Operand};
use super::error::ExpressionError;
use super::path::{DocumentPath, PATH_STEPS_MAX, PathStep};
use super::placeholders::Placeholders;
use super::reserved_words::is_reserved;
use super::token::{Token, TokenKind, parentheses, syntax_error, tokens};
use crate::dynamodb::value::AttributeValue;

/// How long an expression may be.
pub const EXPRESSION_BYTES_MAX: usize = 4_096;
/// How many operators and functions an expression may have.
pub const OPERATORS_MAX: usize = 300;
/// How many operands `IN` may have in its list.
pub const CANDIDATES_MAX: usize = 100;
/// How deep parentheses may stand. Conditions that a library joins one by one need two operators for each level, so they
/// reach the limit of operators first.
pub const EXPRESSION_DEPTH_MAX: usize = 150;

/// How deep functions may stand within each other. Only `size` may stand within another one, so this many are never right.
const FUNCTION_DEPTH_MAX: usize = 8;

const KEYWORDS: [&str; 5] = ["AND", "OR", "NOT", "BETWEEN", "IN"];

impl ItemCondition {
    /// Reads a condition, a filter or a key condition.
    pub fn parse(text: &str, placeholders: &mut Placeholders) -> Result<Self, ExpressionError> {
        let mut parser = Parser::new(text, placeholders)?;
        let condition = parser.condition()?;
        parser.end()?;
        Ok(condition)
    }
}

/// How strongly an operator binds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Precedence {
    Or,
    And,
}

/// What waits for the condition behind it.
enum Waiting {
    Parenthesis,
    Not,
    And(ItemCondition),
    Or(ItemCondition),
}

/// What stands at a place. Whether it must be a condition or an operand is known only after it.
pub(super) enum Parsed {
    Condition(ItemCondition),
    /// A function that is a condition, and its name.
    Function(ItemCondition, &'static str),
    Operand(Operand),
    /// A function that does not exist, which was noted: it may stand anywhere.
    Unknown,
}

pub(super) struct Parser<'t, 'p> {
    text: &'t str,
    tokens: Vec<Token<'t>>,
    at: usize,
    operators: usize,
    /// How many functions are open.
    functions: usize,
    pub(super) placeholders: &'p mut Placeholders,
    /// What is reported, of all that was wrong so far.
    problem: Option<ExpressionError>,
}

impl<'t, 'p> Parser<'t, 'p> {
    pub(super) fn new(text: &'t str, placeholders: &'p mut Placeholders) -> Result<Self, ExpressionError> {
        if text.is_empty() {
            return Err(ExpressionError::Empty);
        }
        if text.len() > EXPRESSION_BYTES_MAX {
            return Err(ExpressionError::TooLong(text.len()));
        }
        let tokens = tokens(text)?;
        let (depth, is_redundant) = parentheses(&tokens);
        if depth > EXPRESSION_DEPTH_MAX {
            return Err(ExpressionError::TooDeep(depth));
        }
        let problem = is_redundant.then_some(ExpressionError::RedundantParentheses);
        Ok(Self { text, tokens, at: 0, operators: 0, functions: 0, placeholders, problem })
    }

    /// The expression is over; of all that is wrong with it the first is reported.
    pub(super) fn end(self) -> Result<(), ExpressionError> {
        if self.peek().kind != TokenKind::End {
            return Err(self.syntax_error());
        }
        self.problem.map_or(Ok(()), Err)
    }

    /// Notes what is wrong, if it is reported before what was noted so far.
    pub(super) fn problem(&mut self, problem: ExpressionError) {
        if self.problem.as_ref().is_none_or(|noted| problem.rank() < noted.rank()) {
            self.problem = Some(problem);
        }
    }

    /// Whether something was noted. What values and operands can have wrong with them is reported after everything else, so it
    /// need not be put into words then.
    pub(super) fn has_problem(&self) -> bool {
        self.problem.is_some()
    }

    fn peek(&self) -> Token<'t> {
        self.tokens[self.at]
    }

    /// The token after the next one. The end is followed by itself.
    fn second(&self) -> Token<'t> {
        self.tokens[(self.at + 1).min(self.tokens.len() - 1)]
    }

    fn next(&mut self) -> Token<'t> {
        let token = self.peek();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    fn syntax_error(&self) -> ExpressionError {
        syntax_error(self.text, &self.tokens, self.at)
    }

    pub(super) fn takes_sign(&mut self, sign: &str) -> bool {
        let is = self.peek().is_sign(sign);
        if is {
            self.next();
        }
        is
    }

    fn takes_keyword(&mut self, keyword: &str) -> bool {
        let is = self.peek().is_keyword(keyword);
        if is {
            self.next();
        }
        is
    }

    fn expect_sign(&mut self, sign: &str) -> Result<(), ExpressionError> {
        if self.takes_sign(sign) { Ok(()) } else { Err(self.syntax_error()) }
    }

    fn count_operator(&mut self) -> Result<(), ExpressionError> {
        self.operators += 1;
        if self.operators > OPERATORS_MAX {
            return Err(ExpressionError::TooManyOperators(self.operators));
        }
        Ok(())
    }

    /// What is open waits in a list and not on the stack of the thread.
    fn condition(&mut self) -> Result<ItemCondition, ExpressionError> {
        let mut waiting = Vec::new();
        loop {
            let mut parsed = self.operand_after(&mut waiting)?;
            loop {
                parsed = self.compared(parsed)?;
                let token = self.peek();
                if token.is_sign(")") && waiting.iter().any(|frame| matches!(frame, Waiting::Parenthesis)) {
                    parsed = self.joined(&mut waiting, parsed, Precedence::Or)?;
                    waiting.pop();
                    self.next();
                    continue;
                }
                let precedence = match token {
                    token if token.is_keyword("AND") => Precedence::And,
                    token if token.is_keyword("OR") => Precedence::Or,
                    _ => {
                        let all = self.joined(&mut waiting, parsed, Precedence::Or)?;
                        let condition = self.as_condition(all)?;
                        // A parenthesis that nobody closes.
                        return if waiting.is_empty() { Ok(condition) } else { Err(self.syntax_error()) };
                    }
                };
                let left = self.joined(&mut waiting, parsed, precedence)?;
                let left = self.as_condition(left)?;
                self.next();
                self.count_operator()?;
                waiting.push(match precedence {
                    Precedence::And => Waiting::And(left),
                    Precedence::Or => Waiting::Or(left),
                });
                break;
            }
        }
    }

    /// The next operand or function, after what opens in front of it.
    fn operand_after(&mut self, waiting: &mut Vec<Waiting>) -> Result<Parsed, ExpressionError> {
        loop {
            if self.takes_keyword("NOT") {
                self.count_operator()?;
                waiting.push(Waiting::Not);
            } else if self.takes_sign("(") {
                waiting.push(Waiting::Parenthesis);
            } else {
                return self.term();
            }
        }
    }

    /// Joins what was read with what waits for it, up to the last parenthesis and down to a precedence.
    fn joined(
        &mut self,
        waiting: &mut Vec<Waiting>,
        mut parsed: Parsed,
        least: Precedence,
    ) -> Result<Parsed, ExpressionError> {
        loop {
            match waiting.last() {
                None | Some(Waiting::Parenthesis) => return Ok(parsed),
                Some(Waiting::Or(_)) if least == Precedence::And => return Ok(parsed),
                Some(_) => {}
            }
            let right = self.as_condition(parsed)?;
            parsed = Parsed::Condition(match waiting.pop() {
                Some(Waiting::And(left)) => and(left, right),
                Some(Waiting::Or(left)) => or(left, right),
                _ => not(right),
            });
        }
    }

    /// The comparison that begins with what was read, if there is one.
    fn compared(&mut self, left: Parsed) -> Result<Parsed, ExpressionError> {
        let token = self.peek();
        let comparator = Comparator::ALL.into_iter().find(|comparator| token.is_sign(comparator.sign()));
        let is_range = token.is_keyword("BETWEEN") || token.is_keyword("IN");
        if comparator.is_none() && !is_range {
            return Ok(left);
        }
        let left = self.as_operand(left)?;
        self.next();
        self.count_operator()?;
        Ok(Parsed::Condition(if let Some(comparator) = comparator {
            let right = self.operand()?;
            self.check_compare(&left, comparator, &right);
            ItemCondition::Compare { left, comparator, right }
        } else if token.is_keyword("BETWEEN") {
            let lower = self.operand()?;
            if !self.takes_keyword("AND") {
                return Err(self.syntax_error());
            }
            let upper = self.operand()?;
            self.check_between(&left, &lower, &upper);
            ItemCondition::Between { operand: left, lower, upper }
        } else {
            let candidates = self.operands()?;
            if candidates.len() > CANDIDATES_MAX {
                self.problem(ExpressionError::TooManyOperands(candidates.len()));
            }
            self.check_distinct("IN", &left, &candidates.iter().collect::<Vec<_>>());
            ItemCondition::In { operand: left, candidates }
        }))
    }

    /// A function, a path or a value.
    fn term(&mut self) -> Result<Parsed, ExpressionError> {
        let token = self.peek();
        match token.kind {
            TokenKind::Word if self.is_function() => self.function(),
            TokenKind::Word | TokenKind::Name => Ok(Parsed::Operand(Operand::Path(self.path()?))),
            TokenKind::Value => {
                self.next();
                let Some(value) = self.placeholders.value(token.text) else {
                    self.problem(ExpressionError::UndefinedValue(token.text.to_owned()));
                    return Ok(Parsed::Operand(stand_in_operand()));
                };
                Ok(Parsed::Operand(Operand::Value(value)))
            }
            _ => Err(self.syntax_error()),
        }
    }

    fn is_function(&self) -> bool {
        self.second().is_sign("(") && !KEYWORDS.iter().any(|keyword| self.peek().is_keyword(keyword))
    }

    fn operand(&mut self) -> Result<Operand, ExpressionError> {
        let mut open = 0;
        while self.takes_sign("(") {
            open += 1;
        }
        let parsed = self.term()?;
        let operand = self.as_operand(parsed)?;
        for _ in 0..open {
            self.expect_sign(")")?;
        }
        Ok(operand)
    }

    /// A list in parentheses, as functions and `IN` have it.
    fn operands(&mut self) -> Result<Vec<Operand>, ExpressionError> {
        self.expect_sign("(")?;
        let mut operands = vec![self.operand()?];
        while self.takes_sign(",") {
            operands.push(self.operand()?);
        }
        self.expect_sign(")")?;
        Ok(operands)
    }

    fn function(&mut self) -> Result<Parsed, ExpressionError> {
        let name = self.next().text;
        self.count_operator()?;
        self.functions += 1;
        if self.functions > FUNCTION_DEPTH_MAX {
            return Err(ExpressionError::TooDeep(self.functions));
        }
        let operands = self.operands()?;
        self.functions -= 1;
        Ok(match name {
            "size" => Parsed::Operand(self.size(operands)),
            "attribute_exists" => self.existence("attribute_exists", operands, ItemCondition::Exists),
            "attribute_not_exists" => {
                self.existence("attribute_not_exists", operands, ItemCondition::NotExists)
            }
            "attribute_type" => self.attribute_type(operands),
            "begins_with" => self.begins_with(operands),
            "contains" => self.contains(operands),
            _ => {
                self.problem(ExpressionError::UnknownFunction(name.to_owned()));
                Parsed::Unknown
            }
        })
    }

    fn as_condition(&mut self, parsed: Parsed) -> Result<ItemCondition, ExpressionError> {
        match parsed {
            Parsed::Condition(condition) | Parsed::Function(condition, _) => Ok(condition),
            Parsed::Operand(Operand::Size(_) | Operand::SizeOfValue(_)) => {
                self.problem(ExpressionError::FunctionMisplaced("size".to_owned()));
                Ok(stand_in_condition())
            }
            Parsed::Operand(_) => Err(self.syntax_error()),
            Parsed::Unknown => Ok(stand_in_condition()),
        }
    }

    fn as_operand(&mut self, parsed: Parsed) -> Result<Operand, ExpressionError> {
        match parsed {
            Parsed::Operand(operand) => Ok(operand),
            Parsed::Function(_, name) => {
                self.problem(ExpressionError::FunctionMisplaced(name.to_owned()));
                Ok(stand_in_operand())
            }
            Parsed::Condition(_) => Err(self.syntax_error()),
            Parsed::Unknown => Ok(stand_in_operand()),
        }
    }

    pub(super) fn path(&mut self) -> Result<DocumentPath, ExpressionError> {
        let attribute = self.name()?;
        let (mut steps, mut count) = (Vec::new(), 1);
        loop {
            let step = if self.takes_sign(".") {
                PathStep::Field(self.name()?)
            } else if self.takes_sign("[") {
                let token = self.peek();
                let place = (token.kind == TokenKind::Digits).then(|| token.text.parse().ok()).flatten();
                let step = PathStep::Place(place.ok_or_else(|| self.syntax_error())?);
                self.next();
                self.expect_sign("]")?;
                step
            } else {
                break;
            };
            count += 1;
            // A path that is too long is read to its end and not kept: errors show what is kept.
            if count <= PATH_STEPS_MAX {
                steps.push(step);
            }
        }
        if count > PATH_STEPS_MAX {
            self.problem(ExpressionError::PathTooDeep(count));
        }
        Ok(DocumentPath { attribute, steps })
    }

    fn name(&mut self) -> Result<Arc<str>, ExpressionError> {
        let token = self.peek();
        let name = match token.kind {
            TokenKind::Word if KEYWORDS.iter().any(|keyword| token.is_keyword(keyword)) => None,
            TokenKind::Word => {
                if is_reserved(token.text) {
                    self.problem(ExpressionError::Reserved(token.text.to_owned()));
                }
                Some(token.text.into())
            }
            TokenKind::Name => {
                let name = self.placeholders.name(token.text);
                if name.is_none() {
                    self.problem(ExpressionError::UndefinedName(token.text.to_owned()));
                }
                name.or_else(|| Some(token.text.into()))
            }
            _ => None,
        };
        let name = name.ok_or_else(|| self.syntax_error())?;
        self.next();
        Ok(name)
    }
}

/// Stands for what is wrong and was noted, so that the rest can be read.
const fn stand_in_condition() -> ItemCondition {
    ItemCondition::Or(Vec::new())
}

pub(super) fn stand_in_operand() -> Operand {
    Operand::Value(Arc::new(AttributeValue::Null))
}

/// Conditions of one operator stand in one list, however they were put into parentheses.
fn and(first: ItemCondition, second: ItemCondition) -> ItemCondition {
    let mut all = match first {
        ItemCondition::And(all) => all,
        other => vec![other],
    };
    match second {
        ItemCondition::And(more) => all.extend(more),
        other => all.push(other),
    }
    ItemCondition::And(all)
}

/// A condition that is negated twice is itself.
fn not(condition: ItemCondition) -> ItemCondition {
    match condition {
        ItemCondition::Not(inner) => *inner,
        other => ItemCondition::Not(Box::new(other)),
    }
}

fn or(first: ItemCondition, second: ItemCondition) -> ItemCondition {
    let mut any = match first {
        ItemCondition::Or(any) => any,
        other => vec![other],
    };
    match second {
        ItemCondition::Or(more) => any.extend(more),
        other => any.push(other),
    }
    ItemCondition::Or(any)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dynamodb::expression::fixture::{error_of, parsed, placeholders};

    #[test]
    fn not_binds_before_and_and_and_before_or() {
        for (text, same) in [
            ("a = :1 OR b = :1 AND c = :1", "a = :1 OR (b = :1 AND c = :1)"),
            ("a = :1 AND b = :1 OR c = :1", "(a = :1 AND b = :1) OR c = :1"),
            ("NOT a = :1 AND b = :1", "(NOT a = :1) AND b = :1"),
            ("NOT a = :1 OR b = :1", "(NOT (a = :1)) OR b = :1"),
            ("not not a = :1", "a = :1"),
            ("a BETWEEN :1 AND :2 AND b = :1", "(a BETWEEN :1 AND :2) AND b = :1"),
            ("(a) between (:1) and (:2)", "a BETWEEN :1 AND :2"),
            ("a = :1 AND (b = :1 AND c = :1)", "(a = :1 AND b = :1) AND c = :1"),
            ("a in(:1,:2)", "a IN (:1, :2)"),
            ("size ( a ) > :1", "size(a) > :1"),
            ("#a.b[0] . #b = :1", "a.b[0].b = :1"),
        ] {
            assert_eq!(parsed(text), parsed(same), "{text}");
        }
        assert_ne!(parsed("a = :1 AND (b = :1 OR c = :1)"), parsed("a = :1 AND b = :1 OR c = :1"));
    }

    #[test]
    fn what_is_no_expression_is_a_syntax_error() {
        for text in [
            "things are not gonna be ok",
            "a > 4",
            "attribute_exists(a-b)",
            "attribute_exists(\"a.b\")",
            "attribute_exists(a..b)",
            "attribute_exists(a#b.c)",
            "attribute_exists(a[b])",
            "a in b, c",
            "a > between",
            "a in b",
            "a in (b,c,)",
            "(a)between(b.(c.d))and(c)",
            "(a)between(b.c.d)and((c)",
            "#$.b > a",
            "a > :1.b",
            "b[:1] > a",
            "b[#a] > a",
            "ü > a",
            "a > b[4.5]",
            "size(a).b > a",
            "(size(a)).b > a",
            "size(a)[0] > a",
            "a",
            "a =",
            "= a",
            "NOT",
            "a = :1 AND",
            "a = :1 b = :1",
            "()",
            "size()",
            "(a = :1) = :1",
            "a = :1)",
            "((a = :1)",
            "a[99999999999999999999] = :1",
            "a = b = c",
            " ",
        ] {
            let found = error_of(text);
            assert!(matches!(found, ExpressionError::Syntax { .. }), "{text}: {found}");
        }
        for (text, token, near) in
            [("a = = b", "=", "= = b"), ("a =", "<EOF>", "="), ("a b", "b", "a b"), ("= b", "=", "= b")]
        {
            let error = ExpressionError::Syntax { token: token.to_owned(), near: near.to_owned() };
            assert_eq!(error_of(text), error, "{text}");
        }
    }

    #[test]
    fn a_name_is_kept_once_however_often_it_is_used() {
        let condition = parsed("#a.#a = :1 OR #a > :1");
        let ItemCondition::Or(parts) = condition else { panic!("{condition:?}") };
        let mut names = Vec::new();
        for part in &parts {
            let ItemCondition::Compare { left: Operand::Path(path), .. } = part else { panic!("{part:?}") };
            names.push(path.attribute.as_ptr());
            names.extend(path.steps.iter().map(|step| match step {
                PathStep::Field(name) => name.as_ptr(),
                PathStep::Place(_) => panic!("{path}"),
            }));
        }
        assert_eq!(names, [names[0]; 3]);
    }

    #[test]
    fn expressions_have_limits() {
        let chain = |count: usize| vec!["a=:1"; count].join(" OR ");
        // Each but the last comes with its own comparator and one `OR`.
        assert!(ItemCondition::parse(&chain(150), &mut placeholders()).is_ok());
        let nested = |depth: usize| format!("{}a=:1{}", "(".repeat(depth), " OR a=:1)".repeat(depth));
        let long = format!("{} = :1", "a".repeat(EXPRESSION_BYTES_MAX));
        for (text, expected) in [
            (String::new(), ExpressionError::Empty),
            (long.clone(), ExpressionError::TooLong(long.len())),
            (chain(151), ExpressionError::TooManyOperators(OPERATORS_MAX + 1)),
            ("(".repeat(151), ExpressionError::TooDeep(151)),
            ("(".repeat(4_096), ExpressionError::TooDeep(4_096)),
            (nested(300), ExpressionError::TooDeep(300)),
            (nested(150), ExpressionError::TooManyOperators(OPERATORS_MAX + 1)),
            (format!("{}a{} > :1", "size(".repeat(9), ")".repeat(9)), ExpressionError::TooDeep(9)),
            (format!("a IN ({}:1)", ":1,".repeat(100)), ExpressionError::TooManyOperands(101)),
            (format!("a{} = :1", ".b".repeat(32)), ExpressionError::PathTooDeep(33)),
        ] {
            assert_eq!(error_of(&text), expected, "{}", &text[..text.len().min(60)]);
        }
        assert_eq!(parsed(&nested(149)), parsed(&chain(150)));
        assert_eq!(parsed(&format!("{}a = :1", "NOT ".repeat(298))), parsed("a = :1"));
    }
}

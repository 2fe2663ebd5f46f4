// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds readings of clocks and short limits of waits in test code. Reads no files; `source` gives it the
//! test code.
//!
//! The rule checks the sources of time, in the tokens of each function, and follows no values:
//! - A test reads a clock once at most, outside of loops and closures: the base of the times it makes up.
//!   Helpers read no clock, and nothing takes the time between two readings.
//! - The limit of a wait is a literal or a constant of at least 30 s. A parameter of a helper with one of
//!   the names in `LIMITS` is judged at the calls of the helper.
//!
//! A simulated clock is exempt, and so is a wait with its expiry as the expected outcome. Sleeps are out of scope, and
//! so are figures that the code under test measures.

use std::collections::BTreeMap;

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{
    Attribute, BinOp, Expr, FnArg, ImplItem, ImplItemFn, Item, ItemFn, Lit, Pat, Signature, Token,
    Type,
};

use crate::source::Source;

/// The shortest limit that a wait may have, in seconds: longer than a busy machine delays a process.
const LIMIT_MIN_S: f64 = 30.0;

/// A branch of `select!` that limits the others, besides waits with a limit.
const SELECT_LIMITS: [&str; 5] = ["sleep", "sleep_until", "interval", "interval_at", "tick"];

/// Parameters of our own functions that bound a wait.
const LIMITS: [&str; 5] = ["deadline", "limit", "patience", "timeout", "within"];

/// The harness, which the tests of several packages use.
const HARNESS: &str = "tests/system/src/";

/// One dependence of a test on a clock.
#[derive(Debug)]
pub struct Finding {
    pub path: String,
    pub line: usize,
    /// The function or other item around it.
    pub function: String,
    pub message: String,
}

/// All findings by file and line, one for each line.
pub fn find(sources: &[Source]) -> Vec<Finding> {
    let known = Known::from_sources(sources);
    let mut findings = Vec::new();
    for source in sources {
        each_part(&source.items, &mut |name, attributes, limits, tokens| {
            let text = attributes.iter().map(|one| one.to_token_stream().to_string());
            let text: String = text.chain([tokens.to_string()]).collect();
            if text.contains("start_paused = true") || text.contains("time :: pause (") {
                return;
            }
            let is_test = attributes.iter().any(is_test);
            let mut part =
                Part { known: &known, source, is_test, has_read: false, limits, out: vec![] };
            part.scan(tokens, Around::default());
            findings.extend(part.out.into_iter().map(|(span, message)| Finding {
                path: source.path.clone(),
                line: span.start().line,
                function: name.clone(),
                message,
            }));
        });
    }
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    findings.dedup_by(|a, b| (&a.path, a.line) == (&b.path, b.line));
    findings
}

/// `#[test]`, `#[tokio::test]`
fn is_test(attribute: &Attribute) -> bool {
    attribute.path().segments.last().is_some_and(|last| last.ident == "test")
}

/// Calls `visit` with each function, and with each other item that may read a clock.
fn each_part(
    items: &[Item],
    visit: &mut impl FnMut(String, &[Attribute], Vec<String>, TokenStream),
) {
    for item in items {
        match item {
            Item::Fn(ItemFn { attrs, sig, block, .. }) => {
                visit(sig.ident.to_string(), attrs, limits_of(sig), block.to_token_stream());
            }
            Item::Impl(item) => {
                for item in &item.items {
                    if let ImplItem::Fn(ImplItemFn { attrs, sig, block, .. }) = item {
                        visit(
                            sig.ident.to_string(),
                            attrs,
                            limits_of(sig),
                            block.to_token_stream(),
                        );
                    }
                }
            }
            Item::Mod(item) => {
                each_part(item.content.as_ref().map_or(&[], |(_, items)| items), visit);
            }
            Item::Use(_) => {}
            other => visit("item".to_owned(), &[], Vec::new(), other.to_token_stream()),
        }
    }
}

/// Declarations of the test code: constants by file and name, and functions.
#[derive(Default)]
struct Known {
    /// The flag tells lengths of time, in seconds, from numbers.
    constants: BTreeMap<(String, String), (f64, bool)>,
    functions: Vec<Function>,
}

struct Function {
    path: String,
    name: String,
    /// The type of an associated function without `self`.
    owner: Option<String>,
    is_method: bool,
    is_wait: bool,
}

impl Known {
    fn from_sources(sources: &[Source]) -> Self {
        let mut known = Self::default();
        // Constants that are made of others are known after the second round.
        for _ in 0..2 {
            known.functions.clear();
            for source in sources {
                let mut learner = Learner { known: &mut known, source, owner: None };
                source.items.iter().for_each(|item| learner.visit_item(item));
            }
        }
        known
    }

    /// A constant by its name: of the file before others of the package, of those the least.
    fn constant(&self, source: &Source, name: &str) -> Option<(f64, bool)> {
        let least = |directory: &str| {
            let constants = self.constants.iter();
            let named = constants.filter(|((path, one), _)| one == name && within(path, directory));
            named.map(|(_, value)| *value).min_by(|a, b| a.0.total_cmp(&b.0))
        };
        least(&source.path).or_else(|| least(source.package())).or_else(|| least(HARNESS))
    }

    /// The value of a constant expression, and whether it is a length of time, in seconds.
    fn value(&self, source: &Source, expr: &Expr) -> Option<(f64, bool)> {
        let value = |expr: &Expr| self.value(source, expr);
        match expr {
            Expr::Lit(lit) => match &lit.lit {
                Lit::Int(number) => Some((number.base10_parse().ok()?, false)),
                Lit::Float(number) => Some((number.base10_parse().ok()?, false)),
                _ => None,
            },
            Expr::Paren(inner) => value(&inner.expr),
            Expr::Reference(inner) => value(&inner.expr),
            Expr::Cast(inner) => value(&inner.expr),
            Expr::Path(path) => {
                let name = path.path.segments.last()?.ident.to_string();
                self.constant(source, &name)
            }
            Expr::Binary(binary) => {
                let ((left, one), (right, other)) = (value(&binary.left)?, value(&binary.right)?);
                let result = match binary.op {
                    BinOp::Add(_) => left + right,
                    BinOp::Sub(_) => left - right,
                    BinOp::Mul(_) => left * right,
                    BinOp::Div(_) => left / right,
                    _ => return None,
                };
                Some((result, one || other))
            }
            Expr::Call(call) => {
                let Expr::Path(path) = &*call.func else { return None };
                let argument = value(call.args.first()?)?;
                let unit = match path.path.segments.last()?.ident.to_string().as_str() {
                    "Some" => return Some(argument),
                    "from_hours" => 3600.0,
                    "from_mins" => 60.0,
                    "from_secs" | "from_secs_f64" | "from_secs_f32" | "new" => 1.0,
                    "from_millis" => 1e-3,
                    "from_micros" => 1e-6,
                    "from_nanos" => 1e-9,
                    _ => return None,
                };
                Some((argument.0 * unit, true))
            }
            _ => None,
        }
    }
}

/// Whether a path is the directory or file, or lies below it.
fn within(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory.trim_end_matches('/'))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Collects constants and functions.
struct Learner<'l> {
    known: &'l mut Known,
    source: &'l Source,
    owner: Option<String>,
}

impl Learner<'_> {
    fn constant(&mut self, name: &syn::Ident, value: &Expr) {
        if let Some(value) = self.known.value(self.source, value) {
            let key = (self.source.path.clone(), name.to_string());
            let one = self.known.constants.entry(key).or_insert(value);
            one.0 = one.0.min(value.0);
        }
    }
}

impl<'a> Visit<'a> for Learner<'_> {
    fn visit_item_const(&mut self, item: &'a syn::ItemConst) {
        self.constant(&item.ident, &item.expr);
    }

    fn visit_impl_item_const(&mut self, item: &'a syn::ImplItemConst) {
        self.constant(&item.ident, &item.expr);
    }

    fn visit_item_impl(&mut self, item: &'a syn::ItemImpl) {
        if let Type::Path(path) = &*item.self_ty {
            self.owner = path.path.segments.last().map(|last| last.ident.to_string());
        }
        visit::visit_item_impl(self, item);
        self.owner = None;
    }

    fn visit_signature(&mut self, signature: &'a Signature) {
        let is_method = signature.receiver().is_some();
        self.known.functions.push(Function {
            path: self.source.path.clone(),
            name: signature.ident.to_string(),
            owner: self.owner.clone().filter(|_| !is_method),
            is_method,
            is_wait: !limits_of(signature).is_empty(),
        });
    }
}

/// The parameters of a function that bound a wait.
fn limits_of(signature: &Signature) -> Vec<String> {
    let names = signature.inputs.iter().filter_map(|input| match input {
        FnArg::Typed(typed) => match (&*typed.pat, typed.ty.to_token_stream().to_string()) {
            (Pat::Ident(name), ty) if ty.contains("Duration") => Some(name.ident.to_string()),
            _ => None,
        },
        FnArg::Receiver(_) => None,
    });
    names.filter(|name| LIMITS.contains(&name.as_str())).collect()
}

/// The context of tokens.
#[derive(Clone, Copy, Default)]
struct Around {
    /// A loop, a closure or a nested function.
    is_repeated: bool,
    is_assert: bool,
    is_select: bool,
    /// A call that may take the name of a program.
    is_command: bool,
}

/// One function, or another item.
struct Part<'a> {
    known: &'a Known,
    source: &'a Source,
    is_test: bool,
    has_read: bool,
    limits: Vec<String>,
    out: Vec<(Span, String)>,
}

impl Part<'_> {
    fn scan(&mut self, tokens: TokenStream, around: Around) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let words: Vec<String> = tokens.iter().map(word).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        // The start of the statement or argument.
        let mut start = 0;
        for (at, token) in tokens.iter().enumerate() {
            let (before, after) = (&words[start..at], &words[at + 1..]);
            let mut here = around;
            here.is_repeated |=
                before.iter().any(|word| ["loop", "while", "for", "fn", "|"].contains(word));
            match token {
                TokenTree::Group(_) if matches!(before, [.., "#"] | [.., "#", "!"]) => {}
                TokenTree::Group(group) => {
                    here.is_assert = before.ends_with(&["assert", "!"]);
                    here.is_select |= before.ends_with(&["select", "!"]);
                    here.is_command = matches!(before, [.., "new" | "arg"]);
                    let list = group.stream().into_iter().map(text).collect::<Vec<_>>();
                    if words[at] == "[]" && calls_timeout(&list.join(" ")) {
                        self.out.push((group.span(), "timeout(1) limits a command".to_owned()));
                    }
                    self.scan(group.stream(), here);
                }
                TokenTree::Ident(name) => {
                    let since = tokens.get(at + 4).map(ToString::to_string).unwrap_or_default();
                    if let Some(message) = self.reading(words[at], before, after, &since, here) {
                        self.out.push((name.span(), message.to_owned()));
                    }
                    if let Some(TokenTree::Group(arguments)) = tokens.get(at + 1)
                        && self.is_wait(words[at], before, around.is_select)
                        && !expects_expiry(before, &after[1..], around.is_assert)
                        && let Some(message) =
                            self.short_limit(arguments.stream(), around.is_select)
                    {
                        self.out.push((name.span(), format!("`{name}`: {message}")));
                    }
                }
                TokenTree::Literal(_) => {
                    let text = text(token.clone());
                    let is_program = at == 0 && around.is_command && is_timeout(&text);
                    if is_program || calls_timeout(&text) {
                        self.out.push((token.span(), "timeout(1) limits a command".to_owned()));
                    }
                }
                TokenTree::Punct(_) => {}
            }
            if matches!(words[at], ";" | "," | "{}") {
                start = at + 1;
            }
        }
    }

    fn reading(
        &mut self,
        name: &str,
        before: &[&str],
        after: &[&str],
        since: &str,
        around: Around,
    ) -> Option<&'static str> {
        let is_path = before.ends_with(&[":", ":"]);
        if name == "elapsed" && (is_path || before.ends_with(&["."]) && after.starts_with(&["()"]))
        {
            return Some("takes the time since a reading of a clock");
        }
        let is_clock = is_path && ["now", "now_utc", "now_local"].contains(&name)
            || ["clock_gettime", "gettimeofday"].contains(&name);
        if !is_clock {
            return None;
        }
        if let ["()", ".", method, ..] = after
            && method.ends_with("duration_since")
            && !since.contains("UNIX_EPOCH")
        {
            return Some("takes the time up to a reading of a clock");
        }
        let mut left = before;
        while let [rest @ .., _, ":", ":"] = left {
            left = rest;
        }
        let compares = |word: &str| ["<", ">", "!"].contains(&word);
        if matches!(left, [.., one, "="] if *one == "=" || compares(one))
            || matches!(left, [.., one, last] if compares(last) && !["=", "-"].contains(one))
            || matches!(after, ["()", one, ..] if *one == "=" || compares(one))
        {
            return Some("compares a reading of a clock");
        }
        match (self.is_test, around.is_repeated, std::mem::replace(&mut self.has_read, true)) {
            (false, _, _) => Some("a helper reads a clock"),
            (_, true, _) => Some("a loop or closure reads a clock"),
            (_, _, true) => Some("the test reads a clock again"),
            _ => None,
        }
    }

    fn is_wait(&self, name: &str, before: &[&str], is_select: bool) -> bool {
        let is_method = matches!(before, [.., "."]);
        let owner = match before {
            [.., owner, ":", ":"] if owner.starts_with(char::is_uppercase) => Some(*owner),
            _ => None,
        };
        let called = |function: &&Function| {
            function.name == name
                && function.is_method == is_method
                && (owner == Some("Self") || owner == function.owner.as_deref())
        };
        // A function of the package hides one of the harness.
        let declared = |directory: &str| {
            let below = self.known.functions.iter().filter(|one| within(&one.path, directory));
            below.filter(called).map(|function| function.is_wait).reduce(|one, other| one || other)
        };
        name.contains("timeout")
            || name == "recv_deadline"
            || is_select && SELECT_LIMITS.contains(&name)
            || declared(self.source.package()).or_else(|| declared(HARNESS)).unwrap_or(false)
    }

    /// The reason why the limit among the arguments of a wait is too short.
    fn short_limit(&self, arguments: TokenStream, is_select: bool) -> Option<String> {
        let parser = Punctuated::<Expr, Token![,]>::parse_terminated;
        let arguments = parser.parse2(arguments).unwrap_or_default();
        if arguments.is_empty() && !is_select {
            return None;
        }
        let is_callers = |argument: &Expr| {
            let text = argument.to_token_stream().to_string();
            let name = text.trim_start_matches("Some (").trim_end_matches(')').trim();
            name == "None" || self.limits.iter().any(|limit| limit == name)
        };
        if arguments.iter().any(is_callers) {
            return None;
        }
        let values = arguments.iter().filter_map(|one| self.known.value(self.source, one));
        match values.filter(|(_, is_time)| *is_time).map(|(value, _)| value).reduce(f64::min) {
            Some(seconds) if seconds >= LIMIT_MIN_S => None,
            Some(seconds) => Some(format!("the limit is {seconds} s, less than {LIMIT_MIN_S} s")),
            None => Some("the limit is neither a literal nor a constant".to_owned()),
        }
    }
}

fn word(token: &TokenTree) -> String {
    match token {
        TokenTree::Group(group) => match group.delimiter() {
            Delimiter::Brace => "{}".to_owned(),
            Delimiter::Bracket => "[]".to_owned(),
            _ => "()".to_owned(),
        },
        token => token.to_string(),
    }
}

/// Whether a wait is expected to run into its limit, or nothing depends on its outcome: a slow machine
/// cannot fail it.
fn expects_expiry(before: &[&str], after: &[&str], is_assert: bool) -> bool {
    let after = after.strip_prefix(&[".", "await"]).unwrap_or(after);
    let is_negated = before.iter().any(|word| ["!", "="].contains(word));
    match after {
        [".", "unwrap_err" | "expect_err", ..] => true,
        [".", "is_err", "()"] | [".", "is_err", "()", "," | "&", ..] => is_assert && !is_negated,
        [";", ..] => before.starts_with(&["let", "_", "="]),
        _ => false,
    }
}

/// The text of a string literal; of other tokens none.
fn text(token: TokenTree) -> String {
    syn::parse2::<syn::LitStr>(token.into()).map(|text| text.value()).unwrap_or_default()
}

fn is_timeout(program: &str) -> bool {
    program == "timeout" || program.ends_with("/timeout")
}

/// Whether a shell text calls timeout(1) with a limit that is short or unknown.
fn calls_timeout(text: &str) -> bool {
    let is_option = |word: &&str| word.starts_with(|c: char| c == '-' || c.is_ascii_uppercase());
    text.split(['\n', ';', '&', '|', '(', '`']).any(|command| {
        let mut words = command.split_whitespace();
        words.next().is_some_and(is_timeout)
            && words.find(|word| !is_option(word)).is_some_and(|limit| {
                let limit = limit.trim_end_matches('s');
                limit.starts_with(|c: char| c == '$' || c.is_ascii_digit())
                    && limit.parse().map_or(true, |seconds: f64| seconds < LIMIT_MIN_S)
            })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const PREAMBLE: &str = "const SOON: Duration = Duration::from_secs(60);\n\
        const SHORT: Duration = Duration::from_millis(2 * 500);\n\
        fn wait_until(deadline: Duration, what: &str) { x.recv_timeout(deadline).unwrap(); }\n\
        struct Own; impl Own { fn new(timeout: Duration) {} fn within(&self, limit: Duration) {} }\n";

    /// The messages about one file of test code.
    fn messages(text: &str) -> Vec<String> {
        let tree = syn::parse_file(text).unwrap_or_else(|e| panic!("{e}: {text}"));
        let tree = BTreeMap::from([("crates/one/tests/it.rs".to_owned(), tree)]);
        find(&crate::source::pick(tree)).into_iter().map(|finding| finding.message).collect()
    }

    fn in_test(body: &str) -> Vec<String> {
        messages(&format!("{PREAMBLE}#[tokio::test]\nasync fn t() {{ {body} }}"))
    }

    #[track_caller]
    fn rejected(bodies: &[&str]) {
        bodies.iter().for_each(|body| assert_ne!(in_test(body), Vec::<String>::new(), "{body}"));
    }

    #[track_caller]
    fn accepted(bodies: &[&str]) {
        bodies.iter().for_each(|body| assert_eq!(in_test(body), Vec::<String>::new(), "{body}"));
    }

    #[test]
    fn clocks_times_between_readings_are_rejected() {
        rejected(&[
            "let s = Instant::now(); assert!(s.elapsed() < SOON);",
            "match start.elapsed() { x => {} }",
            "SHORT.checked_sub(start.elapsed()).expect(\"in time\");",
            "(start.elapsed() < SOON).then_some(()).expect(\"in time\");",
            "let took = Instant::elapsed(&start);",
            "println!(\"{:?}\", start.elapsed());",
            "UNIX_EPOCH.elapsed().unwrap();",
            "let (a, b) = (Instant::now(), Instant::now());",
            "let a = SystemTime::now().duration_since(UNIX_EPOCH); work();\n\
             let b = SystemTime::now().duration_since(UNIX_EPOCH); assert!(b - a < SOON);",
            "SystemTime::now().duration_since(modified).unwrap();",
            "assert!(Instant::now() < until);",
            "assert!(until >= tokio::time::Instant::now());",
            "loop { if Instant::now() > until { panic!() } }",
            "for _ in 0..2 { all.push(Instant::now()); }",
            "let read = || Instant::now();",
            "let read = Instant::now; read(); let read = Instant::now;",
            "matches!(start.elapsed(), a if a < b);",
            "fn read() -> Instant { Instant::now() }",
        ]);
    }

    #[test]
    fn clocks_readings_of_helpers_are_rejected() {
        let helper =
            "fn took() -> u128 { let s = Instant::now(); work(); s.elapsed().as_millis() }";
        assert_eq!(messages(helper).len(), 1);
        assert_eq!(messages("impl Own { fn now() -> u64 { Timestamp::now() } }").len(), 1);
        assert_eq!(messages("static S: LazyLock<Instant> = LazyLock::new(Instant::now);").len(), 1);
        assert_eq!(messages("macro_rules! took { () => { Instant::now() } }").len(), 1);
    }

    #[test]
    fn clocks_made_up_times_are_accepted() {
        accepted(&[
            "let now = Instant::now(); assert_eq!(pace.next(now), now + SECOND);",
            "let now = Instant::now() - SHORT; assert!(pace.due(now) < now + SHORT);",
            "let day = SystemTime::now().duration_since(UNIX_EPOCH).unwrap(); check(day);",
            "assert!(end.duration_since(start) == SHORT);",
            "assert_eq!(settings.timeout, Duration::from_secs(5));",
            "for _ in 0..2 { work(); } let now = Instant::now();",
            "sleep(SHORT).await;",
        ]);
    }

    #[test]
    fn clocks_simulated_time_is_accepted() {
        let body = "let s = Instant::now(); work().await; assert_eq!(s.elapsed(), limit);";
        let paused = format!("#[tokio::test(start_paused = true)] async fn t() {{ {body} }}");
        assert_eq!(messages(&paused), Vec::<String>::new());
        accepted(&[&format!("tokio::time::pause(); {body}")]);
        rejected(&[body]);
    }

    #[test]
    fn clocks_short_limits_are_rejected() {
        rejected(&[
            "wait_until(Duration::from_secs(29), \"it\");",
            "wait_until(SHORT, \"it\");",
            "wait_until(Duration::new(1, 0), \"it\");",
            "wait_until(SOON.min(limit), \"it\");",
            "wait_until(6 * Duration::from_secs(4), \"it\");",
            "own.within(SHORT);",
            "Own::new(SHORT);",
            "receiver.recv_timeout(Duration::from_secs(1)).unwrap();",
            "stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();",
            "std::thread::park_timeout(SHORT);",
            "timeout_at(until, answer).await.unwrap();",
            "timeout(SHORT, answer).await.unwrap();",
            "let _ = timeout(SHORT, answer).await.unwrap();",
            "assert!(!timeout(SHORT, answer).await.is_err());",
            "assert!(timeout(SHORT, answer).await.is_err() == false);",
            "assert!(false == timeout(SHORT, answer).await.is_err());",
            "if timeout(SHORT, answer).await.is_err() { panic!() }",
            "tokio::select! { a = timeout(SHORT, b) => a.unwrap(), _ = c => {} }",
            "tokio::select! { a = b => a, () = tokio::time::sleep(SHORT) => panic!() }",
            "tokio::select! { a = b => a, _ = interval.tick() => panic!() }",
            "Command::new(\"timeout\").args([\"5\", \"true\"]);",
            "run(&[\"/usr/bin/timeout\", \"5\", \"true\"]);",
            "sh(\"cd /; timeout -s KILL 5 true\");",
        ]);
    }

    #[test]
    fn clocks_generous_limits_and_expected_expiries_are_accepted() {
        accepted(&[
            "wait_until(SOON, \"it\");",
            "wait_until(SOON / 2, \"it\");",
            "wait_until(Duration::from_secs(30), \"it\");",
            "own.within(SOON);",
            "Other::new(SHORT);",
            "stream.set_read_timeout(Some(SOON)).unwrap();",
            "stream.set_read_timeout(None).unwrap();",
            "assert!(timeout(SHORT, answer).await.is_err());",
            "assert!(timeout(SHORT, answer).await.is_err(), \"{state}\");",
            "timeout(SHORT, answer).await.unwrap_err();",
            "let _ = timeout(SHORT, answer).await;",
            "tokio::select! { a = b => a, () = tokio::time::sleep(SOON) => panic!() }",
            "sh(\"timeout 60 true\"); assert_eq!(report[\"timeout\"], 5);",
            "says(&[\"timeout\", \"30\"]); let toml = \"timeout = 5\";",
        ]);
    }

    #[test]
    fn clocks_finding_names_line_and_function() {
        let text = "#[test]\nfn t() {\n    let s = Instant::now();\n    s.elapsed();\n}";
        let tree = BTreeMap::from([("tests/one/it.rs".to_owned(), syn::parse_file(text).unwrap())]);
        let found = find(&crate::source::pick(tree));
        assert_eq!((found[0].line, found[0].function.as_str(), found.len()), (4, "t", 1));
    }
}

//! Finds what makes a test depend on a clock: conditions on times that were read, and short limits of
//! waits. Reads no files; `source` gives it the test code.
//!
//! The analysis follows values by name: within a function, and across the functions of a package and of
//! the harness. It knows no types beyond what signatures and constants write down.
//!
//! A *reading* is a point of time (`Instant::now()`), a *time* is what lies between two readings. A
//! reading that is an argument of a function under test is a made-up time like any other, and so is what
//! lies between points of time that all come from one reading. Only what lies between two readings
//! depends on how fast the machine is.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    BinOp, Block, Expr, FnArg, ImplItem, ImplItemFn, Item, ItemFn, Lit, Local, Macro, Pat,
    ReturnType, Signature, Token, Type,
};

use crate::source::Source;

/// The shortest limit that a wait may have, in seconds: longer than a busy machine delays a process.
const LIMIT_MIN_S: f64 = 30.0;

/// Types whose `now` reads a clock.
const CLOCKS: [&str; 4] = ["Instant", "SystemTime", "Timestamp", "Zoned"];

/// The method that reads a clock again.
const ELAPSED: &str = "elapsed";

/// Methods that give the time between two readings of a clock.
const READERS: [&str; 4] =
    [ELAPSED, "duration_since", "saturating_duration_since", "checked_duration_since"];

/// Macros that fail a test, with the number of their arguments that are conditions.
const ASSERTIONS: [(&str, usize); 6] = [
    ("assert", 1),
    ("assert_eq", 2),
    ("assert_ne", 2),
    ("debug_assert", 1),
    ("debug_assert_eq", 2),
    ("debug_assert_ne", 2),
];

/// Waits of libraries, with the position of their limit.
const WAITS: [(&str, usize); 7] = [
    ("timeout", 0),
    ("recv_timeout", 0),
    ("wait_timeout", 1),
    ("wait_timeout_while", 1),
    ("set_read_timeout", 0),
    ("set_write_timeout", 0),
    ("method_timeout", 0),
];

/// Parameters of our own functions that bound a wait.
const LIMITS: [&str; 5] = ["deadline", "limit", "patience", "timeout", "within"];

/// The harness, which the tests of several packages use.
const HARNESS: &str = "tests/system/src/";

/// One dependence of a test on a clock.
#[derive(Debug)]
pub struct Finding {
    pub path: String,
    pub line: usize,
    /// The function around it, or the constant.
    pub function: String,
    pub message: String,
}

/// All findings, by file and line.
pub fn find(sources: &[Source]) -> Vec<Finding> {
    let known = Known::of(sources);
    let mut findings = Vec::new();
    for source in sources {
        each_function(&source.items, &mut |signature, block, paused| {
            if paused {
                return;
            }
            let mut function = Function::new(&known, source);
            function.learn(block);
            let mut found = Finder { function, name: signature.ident.to_string(), out: Vec::new() };
            found.visit_block(block);
            findings.extend(found.out.into_iter().map(|(span, message)| Finding {
                path: source.path.clone(),
                line: span.start().line,
                function: found.name.clone(),
                message,
            }));
        });
    }
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    findings.dedup_by(|a, b| (&a.path, a.line, &a.message) == (&b.path, b.line, &b.message));
    findings
}

/// What the test code declares beyond single functions.
struct Known {
    /// Constants by package, file and name: seconds or numbers; the flag tells durations.
    constants: BTreeMap<String, Vec<(String, String, f64, bool)>>,
    /// Functions that return a time, by package and name, and which parts of a tuple do so.
    readers: BTreeMap<(String, String), Option<Vec<usize>>>,
    /// Functions that bound a wait, with the position of the limit.
    waits: BTreeMap<String, usize>,
}

impl Known {
    fn of(sources: &[Source]) -> Self {
        let waits = WAITS.iter().map(|(name, position)| ((*name).to_owned(), *position)).collect();
        let mut known = Self { constants: BTreeMap::new(), readers: BTreeMap::new(), waits };
        for source in sources {
            known.learn_constants(source, &source.items);
        }
        for source in sources {
            each_function(&source.items, &mut |signature, _, _| known.learn_wait(signature));
        }
        // A function that returns what another one read is found in the second round.
        for _ in 0..2 {
            for source in sources {
                each_function(&source.items, &mut |signature, block, _| {
                    known.learn_reader(source, signature, block);
                });
            }
        }
        known
    }

    fn learn_constants(&mut self, source: &Source, items: &[Item]) {
        for item in items {
            match item {
                Item::Const(item) => {
                    let value = Function::new(self, source).value(&item.expr);
                    if let Some((value, _)) = value {
                        let entries =
                            self.constants.entry(source.package().to_owned()).or_default();
                        let is_duration = mentions(&item.ty, &["Duration"]);
                        entries.push((
                            source.path.clone(),
                            item.ident.to_string(),
                            value,
                            is_duration,
                        ));
                    }
                }
                Item::Mod(item) => {
                    if let Some((_, items)) = &item.content {
                        self.learn_constants(source, items);
                    }
                }
                _ => {}
            }
        }
    }

    fn learn_wait(&mut self, signature: &Signature) {
        let typed = signature.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(typed) => Some(typed),
            FnArg::Receiver(_) => None,
        });
        for (position, typed) in typed.enumerate() {
            if let Pat::Ident(name) = &*typed.pat
                && LIMITS.contains(&name.ident.to_string().as_str())
                && mentions(&typed.ty, &["Duration"])
            {
                self.waits.insert(signature.ident.to_string(), position);
            }
        }
    }

    fn learn_reader(&mut self, source: &Source, signature: &Signature, block: &Block) {
        let ReturnType::Type(_, returned) = &signature.output else { return };
        if !mentions(returned, &["Duration"]) {
            return;
        }
        let mut function = Function::new(self, source);
        function.learn(block);
        if !function.block_reads(block) {
            return;
        }
        let parts = match &**returned {
            Type::Tuple(tuple) => {
                let timed = tuple.elems.iter().enumerate();
                Some(
                    timed
                        .filter(|(_, part)| mentions(part, &["Duration"]))
                        .map(|(at, _)| at)
                        .collect(),
                )
            }
            _ => None,
        };
        let package = if source.path.starts_with(HARNESS) { HARNESS } else { source.package() };
        self.readers.insert((package.to_owned(), signature.ident.to_string()), parts);
    }

    /// Which parts of what a function returns are times: all without a list.
    fn reader(&self, source: &Source, name: &str) -> Option<Option<&Vec<usize>>> {
        let of = |package: &str| self.readers.get(&(package.to_owned(), name.to_owned()));
        of(source.package()).or_else(|| of(HARNESS)).map(Option::as_ref)
    }

    /// A constant by its name: of the file before others of the package, of those the least.
    fn constant(&self, source: &Source, name: &str) -> Option<(f64, bool)> {
        let entries = self.constants.get(source.package()).into_iter().flatten();
        let named = entries.filter(|(_, one, _, _)| one == name);
        let own = named.clone().find(|(path, _, _, _)| *path == source.path);
        let found = own.or_else(|| named.min_by(|a, b| a.2.total_cmp(&b.2)));
        found
            .or_else(|| self.exported(name))
            .map(|(_, _, value, is_duration)| (*value, *is_duration))
    }

    /// A constant of the harness, which other packages use too.
    fn exported(&self, name: &str) -> Option<&(String, String, f64, bool)> {
        self.constants
            .get("tests/system")?
            .iter()
            .find(|(path, one, _, _)| one == name && path.starts_with(HARNESS))
    }
}

/// Calls `visit` with each function of the items, and whether its clock is a simulated one.
fn each_function(items: &[Item], visit: &mut impl FnMut(&Signature, &Block, bool)) {
    for item in items {
        match item {
            Item::Fn(ItemFn { attrs, sig, block, .. }) => {
                visit(sig, block, is_paused(attrs, block));
            }
            Item::Impl(item) => {
                for item in &item.items {
                    if let ImplItem::Fn(ImplItemFn { attrs, sig, block, .. }) = item {
                        visit(sig, block, is_paused(attrs, block));
                    }
                }
            }
            Item::Mod(item) => {
                if let Some((_, items)) = &item.content {
                    each_function(items, visit);
                }
            }
            _ => {}
        }
    }
}

/// `#[tokio::test(start_paused = true)]`, or a call of `tokio::time::pause`.
fn is_paused(attributes: &[syn::Attribute], block: &Block) -> bool {
    struct Pause(bool);
    impl<'a> Visit<'a> for Pause {
        fn visit_expr_call(&mut self, call: &'a syn::ExprCall) {
            let path = path_of(&call.func);
            self.0 |= path.ends_with(&["time".to_owned(), "pause".to_owned()]);
            visit::visit_expr_call(self, call);
        }
    }
    let started = attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        let tokens: Vec<String> = list.tokens.clone().into_iter().map(|t| t.to_string()).collect();
        tokens.windows(3).any(|three| three == ["start_paused", "=", "true"])
    });
    let mut pause = Pause(started);
    pause.visit_block(block);
    pause.0
}

/// Whether a type has one of these names in it.
fn mentions(ty: &Type, names: &[&str]) -> bool {
    struct Names<'n>(&'n [&'n str], bool);
    impl<'a> Visit<'a> for Names<'_> {
        fn visit_ident(&mut self, ident: &'a syn::Ident) {
            self.1 |= self.0.iter().any(|name| ident == name);
        }
    }
    let mut found = Names(names, false);
    found.visit_type(ty);
    found.1
}

/// The segments of a path expression; none of others.
fn path_of(expr: &Expr) -> Vec<String> {
    match expr {
        Expr::Path(path) => path.path.segments.iter().map(|s| s.ident.to_string()).collect(),
        _ => Vec::new(),
    }
}

/// What a function binds: times that were read, and lengths of time that are written down.
struct Function<'a> {
    known: &'a Known,
    source: &'a Source,
    /// How many times the function reads a clock.
    clocks: usize,
    readings: BTreeSet<String>,
    times: BTreeSet<String>,
    lengths: BTreeMap<String, (f64, bool)>,
}

impl<'a> Function<'a> {
    fn new(known: &'a Known, source: &'a Source) -> Self {
        Self {
            known,
            source,
            clocks: 0,
            readings: BTreeSet::new(),
            times: BTreeSet::new(),
            lengths: BTreeMap::new(),
        }
    }

    /// Collects bindings until none is new: they need not stand in order.
    fn learn(&mut self, block: &Block) {
        let mut clocks = Clocks(0);
        clocks.visit_block(block);
        self.clocks = clocks.0;
        loop {
            let size = |this: &Self| this.readings.len() + this.times.len() + this.lengths.len();
            let before = size(self);
            Binder(self).visit_block(block);
            if size(self) == before {
                return;
            }
        }
    }

    fn bind(&mut self, pattern: &Pat, value: &Expr) {
        match (pattern, value) {
            (Pat::Type(typed), _) => self.bind(&typed.pat, value),
            (Pat::Tuple(names), Expr::Tuple(values)) => {
                for (name, value) in names.elems.iter().zip(&values.elems) {
                    self.bind(name, value);
                }
            }
            (Pat::Tuple(names), _) if self.reads(value) => {
                let parts = self.parts_of(value);
                for (at, name) in names.elems.iter().enumerate() {
                    if parts.is_none_or(|parts| parts.contains(&at)) {
                        self.mark(name);
                    }
                }
            }
            (Pat::Ident(name), _) => {
                if let Some(length) = self.value(value) {
                    self.lengths.entry(name.ident.to_string()).or_insert(length);
                }
                if self.is_reading(value) {
                    self.readings.insert(name.ident.to_string());
                } else if self.reads(value) {
                    self.mark(pattern);
                }
            }
            _ if self.reads(value) => self.mark(pattern),
            _ => {}
        }
    }

    /// The parts of a tuple that hold times, when a known function returns it.
    fn parts_of(&self, value: &Expr) -> Option<&'a Vec<usize>> {
        let name = match value {
            Expr::Call(call) => path_of(&call.func).pop()?,
            Expr::MethodCall(call) => call.method.to_string(),
            Expr::Await(inner) => return self.parts_of(&inner.base),
            _ => return None,
        };
        self.known.reader(self.source, &name)?
    }

    /// Marks the names of a pattern as times.
    fn mark(&mut self, pattern: &Pat) {
        struct Idents<'s>(&'s mut BTreeSet<String>);
        impl<'a> Visit<'a> for Idents<'_> {
            fn visit_pat_ident(&mut self, pattern: &'a syn::PatIdent) {
                self.0.insert(pattern.ident.to_string());
                visit::visit_pat_ident(self, pattern);
            }
        }
        Idents(&mut self.times).visit_pat(pattern);
    }

    /// Whether an expression is a reading of a clock, or a point of time before or after it.
    fn is_reading(&self, expr: &Expr) -> bool {
        match expr {
            Expr::Path(path) => {
                path.path.get_ident().is_some_and(|name| self.readings.contains(&name.to_string()))
            }
            Expr::Call(call) => is_now(&path_of(&call.func)),
            Expr::Paren(inner) => self.is_reading(&inner.expr),
            Expr::Reference(inner) => self.is_reading(&inner.expr),
            Expr::Binary(binary) => {
                matches!(binary.op, BinOp::Add(_) | BinOp::Sub(_))
                    && self.is_reading(&binary.left)
                    && !self.is_reading(&binary.right)
            }
            _ => false,
        }
    }

    /// Whether an expression depends on the time between two readings.
    fn reads(&self, expr: &Expr) -> bool {
        let mut reads = Reads { function: self, found: false };
        reads.visit_expr(expr);
        reads.found
    }

    fn block_reads(&self, block: &Block) -> bool {
        let mut reads = Reads { function: self, found: false };
        reads.visit_block(block);
        reads.found
    }

    /// The value of a constant expression, and whether it is a duration (in seconds).
    fn value(&self, expr: &Expr) -> Option<(f64, bool)> {
        match expr {
            Expr::Lit(lit) => match &lit.lit {
                Lit::Int(number) => number.base10_parse().ok().map(|number| (number, false)),
                Lit::Float(number) => number.base10_parse().ok().map(|number| (number, false)),
                _ => None,
            },
            Expr::Paren(inner) => self.value(&inner.expr),
            Expr::Group(inner) => self.value(&inner.expr),
            Expr::Reference(inner) => self.value(&inner.expr),
            Expr::Cast(inner) => self.value(&inner.expr),
            Expr::Path(_) => {
                let name = path_of(expr).pop()?;
                let local = self.lengths.get(&name).copied();
                local.or_else(|| self.known.constant(self.source, &name))
            }
            Expr::Binary(binary) => {
                let (left, is_left) = self.value(&binary.left)?;
                let (right, is_right) = self.value(&binary.right)?;
                let value = match binary.op {
                    BinOp::Add(_) => left + right,
                    BinOp::Sub(_) => left - right,
                    BinOp::Mul(_) => left * right,
                    BinOp::Div(_) => left / right,
                    _ => return None,
                };
                Some((value, is_left || is_right))
            }
            Expr::Call(call) => {
                let name = path_of(&call.func).pop()?;
                let argument = self.value(call.args.first()?)?;
                let unit = match name.as_str() {
                    "Some" => return Some(argument),
                    "from_hours" => 3600.0,
                    "from_mins" => 60.0,
                    "from_secs" | "from_secs_f64" | "from_secs_f32" => 1.0,
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

    /// The limit of a wait, when it is written down and too short.
    fn short_limit(&self, name: &str, arguments: &Punctuated<Expr, Token![,]>) -> Option<f64> {
        let limit = arguments.get(*self.known.waits.get(name)?)?;
        let (seconds, is_duration) = self.value(limit)?;
        (is_duration && seconds < LIMIT_MIN_S).then_some(seconds)
    }
}

/// Collects the bindings of a function.
struct Binder<'f, 'a>(&'f mut Function<'a>);

impl Visit<'_> for Binder<'_, '_> {
    fn visit_local(&mut self, local: &Local) {
        if let Some(init) = &local.init {
            self.0.bind(&local.pat, &init.expr);
        }
        visit::visit_local(self, local);
    }

    fn visit_item_const(&mut self, item: &syn::ItemConst) {
        if let Some(length) = self.0.value(&item.expr) {
            self.0.lengths.insert(item.ident.to_string(), length);
        }
    }

    fn visit_expr_let(&mut self, binding: &syn::ExprLet) {
        self.0.bind(&binding.pat, &binding.expr);
        visit::visit_expr_let(self, binding);
    }

    fn visit_expr_for_loop(&mut self, binding: &syn::ExprForLoop) {
        self.0.bind(&binding.pat, &binding.expr);
        visit::visit_expr_for_loop(self, binding);
    }

    fn visit_expr_assign(&mut self, assign: &syn::ExprAssign) {
        if self.0.reads(&assign.right) {
            self.0.times.extend(root_of(&assign.left));
        }
        visit::visit_expr_assign(self, assign);
    }

    // `delays.push(start.elapsed())`
    fn visit_expr_method_call(&mut self, call: &syn::ExprMethodCall) {
        let collects = ["push", "push_back", "insert", "extend"];
        if collects.iter().any(|name| call.method == name)
            && call.args.iter().any(|argument| self.0.reads(argument))
        {
            self.0.times.extend(root_of(&call.receiver));
        }
        visit::visit_expr_method_call(self, call);
    }
}

/// The variable that an expression changes a part of.
fn root_of(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Path(_) => path_of(expr).pop(),
        Expr::Field(field) => root_of(&field.base),
        Expr::Index(index) => root_of(&index.expr),
        Expr::Unary(unary) => root_of(&unary.expr),
        Expr::MethodCall(call) => root_of(&call.receiver),
        _ => None,
    }
}

/// Counts the readings of clocks.
struct Clocks(usize);

impl Visit<'_> for Clocks {
    fn visit_expr_call(&mut self, call: &syn::ExprCall) {
        self.0 += usize::from(is_now(&path_of(&call.func)));
        visit::visit_expr_call(self, call);
    }

    fn visit_expr_method_call(&mut self, call: &syn::ExprMethodCall) {
        self.0 += usize::from(call.method == ELAPSED);
        visit::visit_expr_method_call(self, call);
    }
}

/// Whether a called path is `Instant::now` or the like.
fn is_now(path: &[String]) -> bool {
    matches!(path, [.., clock, name] if name == "now" && CLOCKS.contains(&clock.as_str()))
}

/// Whether an expression is `Instant::now()` itself.
fn is_fresh(expr: &Expr) -> bool {
    matches!(expr, Expr::Call(call) if is_now(&path_of(&call.func)))
}

/// Whether anything in an expression is a time, or an order of readings.
struct Reads<'f, 'a> {
    function: &'f Function<'a>,
    found: bool,
}

impl Reads<'_, '_> {
    fn tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Ident(name) => {
                    let name = name.to_string();
                    self.found |= self.function.times.contains(&name) || name == "elapsed";
                }
                _ => {}
            }
        }
    }
}

impl Visit<'_> for Reads<'_, '_> {
    fn visit_expr_path(&mut self, path: &syn::ExprPath) {
        let name = path.path.get_ident();
        self.found |= name.is_some_and(|name| self.function.times.contains(&name.to_string()));
    }

    fn visit_expr_binary(&mut self, binary: &syn::ExprBinary) {
        let both = self.function.clocks > 1
            && self.function.is_reading(&binary.left)
            && self.function.is_reading(&binary.right);
        self.found |= match binary.op {
            BinOp::Sub(_) => both,
            _ if is_order(&binary.op) => both || is_fresh(&binary.left) || is_fresh(&binary.right),
            _ => false,
        };
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_call(&mut self, call: &syn::ExprCall) {
        self.found |= path_of(&call.func)
            .last()
            .is_some_and(|name| self.function.known.reader(self.function.source, name).is_some());
        visit::visit_expr_call(self, call);
    }

    fn visit_expr_method_call(&mut self, call: &syn::ExprMethodCall) {
        let name = call.method.to_string();
        // The time of day is a reading.
        let of_day = call
            .args
            .first()
            .is_some_and(|since| path_of(since).last().is_some_and(|last| last == "UNIX_EPOCH"));
        let measures = name == ELAPSED || self.function.clocks > 1 || is_fresh(&call.receiver);
        self.found |= READERS.contains(&name.as_str()) && measures && !of_day;
        self.found |= self.function.known.reader(self.function.source, &name).is_some();
        visit::visit_expr_method_call(self, call);
    }

    fn visit_macro(&mut self, mac: &Macro) {
        self.tokens(mac.tokens.clone());
    }

    // A nested function has its own bindings.
    fn visit_item(&mut self, _: &Item) {}
}

/// Reports the conditions and limits of a function.
struct Finder<'a> {
    function: Function<'a>,
    name: String,
    out: Vec<(Span, String)>,
}

impl Finder<'_> {
    fn report(&mut self, span: Span, message: impl Into<String>) {
        self.out.push((span, message.into()));
    }

    fn condition(&mut self, expr: &Expr, kind: &str) {
        if self.function.reads(expr) {
            self.report(expr.span(), format!("{kind} depends on a clock"));
        }
    }

    fn limit(&mut self, span: Span, name: &str, arguments: &Punctuated<Expr, Token![,]>) {
        if let Some(seconds) = self.function.short_limit(name, arguments) {
            self.report(span, format!("`{name}` waits for at most {seconds} s, less than 30 s"));
        }
    }

    fn assertion(&mut self, mac: &Macro, conditions: usize) {
        let Ok(arguments) = arguments_of(mac.tokens.clone()) else { return };
        for condition in arguments.iter().take(conditions) {
            self.condition(condition, "the assertion");
            let mut orders = Orders { function: &self.function, found: Vec::new() };
            orders.visit_expr(condition);
            for span in orders.found {
                self.report(span, "the assertion compares with a length of time");
            }
        }
        for argument in &arguments {
            self.visit_expr(argument);
        }
    }

    /// Macros that are no list of expressions, such as `select!`.
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for (at, token) in tokens.iter().enumerate() {
            let TokenTree::Group(group) = token else { continue };
            let inner = || arguments_of(group.stream());
            match &tokens[..at] {
                [.., TokenTree::Ident(name)] if group.delimiter() == Delimiter::Parenthesis => {
                    if let Ok(arguments) = inner() {
                        self.limit(name.span(), &name.to_string(), &arguments);
                    }
                }
                [.., TokenTree::Ident(name), TokenTree::Punct(mark)] if mark.as_char() == '!' => {
                    let conditions = ASSERTIONS.iter().find(|(one, _)| name == one);
                    if let (Some((_, conditions)), Ok(arguments)) = (conditions, inner()) {
                        for condition in arguments.iter().take(*conditions) {
                            self.condition(condition, "the assertion");
                        }
                    }
                }
                _ => {}
            }
            self.tokens(group.stream());
        }
    }
}

fn arguments_of(tokens: TokenStream) -> syn::Result<Punctuated<Expr, Token![,]>> {
    syn::parse::Parser::parse2(Punctuated::parse_terminated, tokens)
}

/// Whether a wait is expected to run into its limit: `timeout(…).await.is_err()`.
fn expects_expiry(method: &str) -> bool {
    ["is_err", "unwrap_err", "expect_err"].contains(&method)
}

impl Visit<'_> for Finder<'_> {
    fn visit_macro(&mut self, mac: &Macro) {
        let name = mac.path.segments.last().map(|s| s.ident.to_string()).unwrap_or_default();
        if let Some((_, conditions)) = ASSERTIONS.iter().find(|(one, _)| *one == name) {
            self.assertion(mac, *conditions);
        } else if let Ok(arguments) = arguments_of(mac.tokens.clone()) {
            arguments.iter().for_each(|argument| self.visit_expr(argument));
        } else {
            self.tokens(mac.tokens.clone());
        }
    }

    fn visit_expr_if(&mut self, branch: &syn::ExprIf) {
        self.condition(&branch.cond, "the branch");
        visit::visit_expr_if(self, branch);
    }

    fn visit_expr_while(&mut self, repeated: &syn::ExprWhile) {
        self.condition(&repeated.cond, "the end of the loop");
        visit::visit_expr_while(self, repeated);
    }

    fn visit_pat_guard(&mut self, pattern: &syn::PatGuard) {
        self.condition(&pattern.guard, "the branch");
        visit::visit_pat_guard(self, pattern);
    }

    fn visit_expr_call(&mut self, call: &syn::ExprCall) {
        if let Some(name) = path_of(&call.func).pop() {
            self.limit(call.func.span(), &name, &call.args);
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_expr_method_call(&mut self, call: &syn::ExprMethodCall) {
        if expects_expiry(&call.method.to_string()) {
            return;
        }
        self.limit(call.method.span(), &call.method.to_string(), &call.args);
        visit::visit_expr_method_call(self, call);
    }

    fn visit_local(&mut self, local: &Local) {
        // `let _ = timeout(…)`: nothing depends on the outcome.
        if !matches!(local.pat, Pat::Wild(_)) {
            visit::visit_local(self, local);
        }
    }

    // `each_function` brings those of modules; a nested function is read as a part of its own.
    fn visit_item(&mut self, item: &Item) {
        if let Item::Fn(item) = item {
            self.visit_block(&item.block);
        }
    }
}

fn is_order(op: &BinOp) -> bool {
    matches!(op, BinOp::Lt(_) | BinOp::Le(_) | BinOp::Gt(_) | BinOp::Ge(_))
}

/// Orders (`<`, `contains`) with a length of time that is written down, whatever was measured.
struct Orders<'f, 'a> {
    function: &'f Function<'a>,
    found: Vec<Span>,
}

impl Orders<'_, '_> {
    fn is_length(&self, expr: &Expr) -> bool {
        self.function.value(expr).is_some_and(|(_, is_duration)| is_duration)
    }
}

impl Visit<'_> for Orders<'_, '_> {
    fn visit_expr_binary(&mut self, binary: &syn::ExprBinary) {
        if self.function.clocks != 1
            && is_order(&binary.op)
            && (self.is_length(&binary.left) || self.is_length(&binary.right))
        {
            self.found.push(binary.span());
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_range(&mut self, range: &syn::ExprRange) {
        if self.function.clocks != 1
            && range.start.iter().chain(&range.end).any(|end| self.is_length(end))
        {
            self.found.push(range.span());
        }
        visit::visit_expr_range(self, range);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::pick;

    /// Line and message of each finding in a test file of a package, with a harness beside it.
    fn findings(source: &str) -> Vec<(usize, String)> {
        let harness = "pub const SHORT: Duration = Duration::from_secs(20);\n\
                       pub const SOON: Duration = Duration::from_secs(60);\n\
                       pub fn wait_until(deadline: Duration, what: &str, is_so: impl FnMut() -> bool) {}\n";
        let files = [("crates/one/tests/it.rs", source), ("tests/system/src/wait.rs", harness)];
        let parse = |text: &str| syn::parse_file(text).expect("Rust");
        let files = files.map(|(path, text)| (path.to_owned(), parse(text)));
        let found = find(&pick(files.into_iter().collect()));
        assert!(found.iter().all(|one| one.path == "crates/one/tests/it.rs"), "{found:?}");
        found.into_iter().map(|one| (one.line, one.message)).collect()
    }

    /// Findings in the body of a test.
    fn body(body: &str) -> Vec<String> {
        let source = format!("#[test]\nfn area_condition_result() {{\n{body}\n}}");
        findings(&source).into_iter().map(|(_, message)| message).collect()
    }

    #[track_caller]
    fn is_found(text: &str) {
        assert_ne!(body(text), Vec::<String>::new(), "{text}");
    }

    #[track_caller]
    fn is_allowed(text: &str) {
        assert_eq!(body(text), Vec::<String>::new(), "{text}");
    }

    #[test]
    fn clocks_elapsed_in_assertion_is_found() {
        is_found("let s = Instant::now(); assert!(s.elapsed() < limit);");
        is_found("let s = Instant::now(); assert!(s.elapsed() >= limit, \"early\");");
        is_found("let s = Instant::now(); assert_eq!(s.elapsed().as_secs(), 3);");
        is_found("let s = Instant::now(); debug_assert!(matches!(s.elapsed().as_secs(), 0..3));");
        is_found("assert!(Instant::now() < deadline);");
        is_found("assert!(SystemTime::now().duration_since(start).unwrap() < limit);");
    }

    #[test]
    fn clocks_elapsed_through_variables_is_found() {
        is_found("let s = Instant::now(); let took = s.elapsed(); assert!(took < limit);");
        is_found("let s = Instant::now(); let ms = s.elapsed().as_millis(); assert!(ms < 5);");
        is_found(
            "let a = Instant::now(); let b = Instant::now(); let t = b - a; assert!(t < limit);",
        );
        is_found("let a = Instant::now(); let b = Instant::now(); assert!(b < a + limit);");
        is_found(
            "let t = b.duration_since(a); let _ = (Instant::now(), Instant::now()); assert!(t < l);",
        );
        is_found("let mut all = Vec::new(); all.push(s.elapsed()); assert!(all[3] < limit);");
        is_found(
            "let mut most = Duration::ZERO; most = most.max(s.elapsed()); assert!(most < limit);",
        );
        is_found(
            "let (s, n) = (Instant::now(), 1); let (t, n) = (s.elapsed(), 2); assert!(t < limit);",
        );
        is_found("let took = || s.elapsed(); assert!(took() < limit);");
    }

    #[test]
    fn clocks_elapsed_through_functions_is_found() {
        let timed = "fn timed() -> (u32, Duration) { let s = Instant::now(); (1, s.elapsed()) }\n\
                     fn longer() -> Duration { timed().1 }\n";
        let line = |test: &str| findings(&format!("{timed}#[test]\nfn t() {{ {test} }}")).len();
        assert_eq!(line("let (answer, took) = timed(); assert!(took < limit);"), 1);
        assert_eq!(line("let (answer, took) = timed(); assert_eq!(answer, 1);"), 0);
        assert_eq!(line("assert!(longer() < limit);"), 1);
    }

    #[test]
    fn clocks_deadline_in_loop_is_found() {
        is_found("loop { if s.elapsed() > limit { panic!(\"late\") } }");
        is_found("let until = Instant::now() + limit; while Instant::now() < until { work(); }");
        is_found("match look() { Err(e) if s.elapsed() > limit => panic!(\"{e}\"), _ => {} }");
    }

    #[test]
    fn clocks_comparison_with_duration_is_found() {
        is_found("assert!(report.longest < Duration::from_secs(3));");
        is_found("const MOST: Duration = Duration::from_secs(3); assert!(longest <= MOST);");
        is_found("assert!((Duration::ZERO..Duration::from_millis(700)).contains(&took));");
    }

    #[test]
    fn clocks_short_limit_is_found() {
        is_found("wait_until(Duration::from_secs(29), \"it\", || true);");
        is_found("wait_until(SHORT, \"it\", || true);");
        is_found("let soon = Duration::from_millis(500); wait_until(soon, \"it\", || true);");
        is_found("wait_until(6 * Duration::from_secs(4), \"it\", || true);");
        is_found("receiver.recv_timeout(Duration::from_secs(1)).unwrap();");
        is_found("stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();");
        is_found("timeout(Duration::from_secs(5), answer).await.unwrap();");
        is_found(
            "tokio::select! { a = timeout(Duration::from_secs(5), b) => a.unwrap(), _ = c => {} }",
        );
    }

    #[test]
    fn clocks_generous_limit_is_allowed() {
        is_allowed("wait_until(SOON, \"it\", || true);");
        is_allowed("wait_until(Duration::from_secs(30), \"it\", || true);");
        is_allowed("timeout(Duration::from_mins(1), answer).await.unwrap();");
        is_allowed("stream.set_read_timeout(Some(SOON)).unwrap();");
    }

    #[test]
    fn clocks_expected_expiry_is_allowed() {
        is_allowed("assert!(timeout(Duration::from_millis(50), answer).await.is_err());");
        is_allowed("let _ = timeout(Duration::from_millis(50), answer).await;");
    }

    #[test]
    fn clocks_simulated_time_is_allowed() {
        let test = |attribute: &str, body: &str| {
            let text = format!("#[tokio::test{attribute}]\nasync fn t() {{ {body} }}");
            findings(&text).len()
        };
        let body = "let s = Instant::now(); work().await; assert_eq!(s.elapsed(), limit);";
        assert_eq!(test("(start_paused = true)", body), 0);
        assert_eq!(test("", body), 1);
        assert_eq!(test("", &format!("tokio::time::pause(); {body}")), 0);
    }

    #[test]
    fn clocks_made_up_times_are_allowed() {
        is_allowed("let now = Instant::now(); assert_eq!(pace.next(now), now + SECOND);");
        is_allowed("let now = Instant::now(); let end = now + MS; assert_eq!(end - now, MS);");
        is_allowed(
            "let now = Instant::now(); assert!(pace.due(now) < now + Duration::from_secs(1));",
        );
        is_allowed(
            "let day = SystemTime::now().duration_since(UNIX_EPOCH); assert_eq!(day, read);",
        );
        is_allowed("assert_eq!(settings.timeout, Duration::from_secs(5));");
    }

    #[test]
    fn clocks_message_and_print_are_allowed() {
        is_allowed("let s = Instant::now(); assert!(is_so, \"after {:?}\", s.elapsed());");
        is_allowed("let s = Instant::now(); println!(\"{:?}\", s.elapsed());");
    }

    #[test]
    fn clocks_finding_names_its_line() {
        let source =
            "#[test]\nfn t() {\n    let s = Instant::now();\n    assert!(s.elapsed() < l);\n}";
        let found = findings(source);
        assert_eq!(found, [(4, "the assertion depends on a clock".to_owned())]);
    }
}

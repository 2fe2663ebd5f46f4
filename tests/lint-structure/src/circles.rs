// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check `circles`: no circle of `use` between the files of one crate, tests left out.
//!
//! An arrow leads from a file that names an item to the file that defines it. The name may be in a `use` declaration,
//! an expression, a type, an attribute or the tokens of a macro. These make no arrow:
//! - `mod child;`
//! - A re-export alone. A name that arrives through it leads to the file with the definition, and so do
//!   the uses in the file of the re-export.
//! - An import of a module. The items that are named through it make the arrows.
//! - The use of an item of a module around the file. Such a module and its submodules are one unit: a submodule
//!   sees the private items around it.
//! - The use of a method, or of a macro without a path: neither names its file.

use std::collections::BTreeMap;

use proc_macro2::TokenStream;
use syn::visit::{self, Visit};
use syn::{
    Attribute, Field, ImplItem, Item, ItemMod, ItemUse, Local, Macro, Meta, Path, Visibility,
};

use crate::finding::{Finding, List};
use crate::modules::{self, Import, Modules, Target};
use crate::syntax;
use crate::workspace::{Package, Source};

/// Arrows between files by index: from, to, and the first line that makes each.
type Arrows = BTreeMap<(usize, usize), usize>;

/// The arrows that a circle may have.
#[derive(Clone, Copy, PartialEq)]
pub enum Scope {
    All,
    /// Without arrows from a file to the files of the modules around it.
    WithoutAncestors,
}

/// One finding for each circle of a crate.
pub fn check(package: &Package, sources: &[Source], scope: Scope) -> Vec<Finding> {
    let arrows = arrows(sources, scope);
    let circles = circles(sources.len(), &arrows);
    circles.iter().map(|circle| finding(package, sources, &arrows, circle)).collect()
}

fn finding(package: &Package, sources: &[Source], arrows: &Arrows, circle: &[usize]) -> Finding {
    let mut files: Vec<&str> = circle.iter().map(|&file| sources[file].path.as_str()).collect();
    files.sort_unstable();
    let mut lines: Vec<String> = Vec::new();
    for (&(from, to), line) in arrows {
        if circle.contains(&from) && circle.contains(&to) {
            lines.push(format!("{}:{line}: names {}", sources[from].path, sources[to].path));
        }
    }
    lines.sort();
    let names = files.join(", ");
    let message =
        format!("{} files of {} name each other in a circle: {names}", files.len(), package.name);
    let fix = "Move what they share into a file that names none of them";
    let finding = Finding::new(files[0], 1, message, fix);
    Finding { details: lines, ..finding.listed(List::Circles, files.join(" ")) }
}

/// The arrows between the files of a package.
fn arrows(sources: &[Source], scope: Scope) -> Arrows {
    let mut arrows = Arrows::new();
    let roots = sources.iter().enumerate().filter(|(_, one)| one.is_root && !one.is_test);
    for (root, _) in roots {
        let modules = Modules::new(sources, root);
        for (module, file) in modules.files() {
            let mut names = Names { modules: &modules, scope, module, file, arrows: &mut arrows };
            names.visit_file(&sources[file].file);
        }
    }
    arrows
}

/// Collects the arrows of one file.
struct Names<'a> {
    modules: &'a Modules,
    scope: Scope,
    module: usize,
    file: usize,
    arrows: &'a mut Arrows,
}

impl Names<'_> {
    fn name(&mut self, path: &[String], line: usize) {
        if let Some(Target::Item(module)) = self.modules.resolve(self.module, path) {
            self.arrow(module, line);
        }
    }

    fn arrow(&mut self, module: usize, line: usize) {
        let to = self.modules.source(module);
        let left_out = self.scope == Scope::WithoutAncestors
            && self.modules.around(self.module).any(|outer| self.modules.source(outer) == to);
        if to != self.file && !left_out {
            let first = self.arrows.entry((self.file, to)).or_insert(line);
            *first = line.min(*first);
        }
    }

    fn tokens(&mut self, tokens: TokenStream) {
        syntax::paths(tokens, &mut |path, at| self.name(path, at.start().line));
    }
}

impl<'a> Visit<'a> for Names<'_> {
    fn visit_item(&mut self, item: &'a Item) {
        if !syntax::is_for_tests(syntax::attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'a ImplItem) {
        if !syntax::is_for_tests(syntax::impl_attributes(item)) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_field(&mut self, field: &'a Field) {
        if !syntax::is_for_tests(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_local(&mut self, local: &'a Local) {
        if !syntax::is_for_tests(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_item_mod(&mut self, item: &'a ItemMod) {
        if item.content.is_none() {
            return;
        }
        let outer = self.module;
        if let Some(inner) = self.modules.child(outer, &item.ident.to_string()) {
            self.module = inner;
            visit::visit_item_mod(self, item);
            self.module = outer;
        }
    }

    fn visit_item_use(&mut self, item: &'a ItemUse) {
        if item.leading_colon.is_some() || modules::is_re_export(&item.vis) {
            return;
        }
        for Import { path, name, line } in modules::imports(&item.tree) {
            match self.modules.resolve(self.module, &path) {
                Some(Target::Item(module)) => self.arrow(module, line),
                Some(Target::Module(module)) if name.is_none() => self.arrow(module, line),
                _ => {}
            }
        }
    }

    fn visit_path(&mut self, path: &'a Path) {
        if path.leading_colon.is_none() {
            let names: Vec<String> =
                path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.name(&names, path.segments[0].ident.span().start().line);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, one: &'a Macro) {
        visit::visit_macro(self, one);
        self.tokens(one.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &'a Attribute) {
        match &attribute.meta {
            Meta::List(list) => self.tokens(list.tokens.clone()),
            Meta::NameValue(value) => self.visit_expr(&value.value),
            Meta::Path(_) => {}
        }
    }

    // `pub(in crate::a)` names no item.
    fn visit_visibility(&mut self, _: &'a Visibility) {}
}

/// The strongly connected components with several files, each sorted.
fn circles(files: usize, arrows: &Arrows) -> Vec<Vec<usize>> {
    let mut next = vec![Vec::new(); files];
    for &(from, to) in arrows.keys() {
        next[from].push(to);
    }
    let reached: Vec<Vec<bool>> = (0..files).map(|file| reached(file, &next)).collect();
    let is_circle = |one: usize, other: usize| reached[one][other] && reached[other][one];
    let is_first = |file: &usize| !(0..*file).any(|other| is_circle(*file, other));
    let circle = |file: usize| (file..files).filter(|&other| is_circle(file, other)).collect();
    let components = (0..files).filter(is_first).map(circle);
    components.filter(|files: &Vec<usize>| files.len() > 1).collect()
}

/// The files that arrows lead to from `start`, directly or not.
fn reached(start: usize, next: &[Vec<usize>]) -> Vec<bool> {
    let mut reached = vec![false; next.len()];
    let mut queue = vec![start];
    while let Some(file) = queue.pop() {
        for &to in &next[file] {
            if !reached[to] {
                reached[to] = true;
                queue.push(to);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn found(files: &[(&str, &str)], scope: Scope) -> Vec<Finding> {
        fixture::one_crate(files, |package, sources| check(package, sources, scope))
    }

    /// The circles of a crate, each as its files without `crates/sync/one/src/`.
    fn circles_of(files: &[(&str, &str)]) -> Vec<String> {
        let found = found(files, Scope::All);
        found.iter().map(|one| one.key.replace("crates/sync/one/src/", "")).collect()
    }

    const NONE: [&str; 0] = [];

    #[test]
    fn circle_of_two_files_lists_arrows() {
        let files = [
            ("src/lib.rs", "mod a; mod b;"),
            ("src/a.rs", "use crate::b::B;\nstruct A(B);"),
            ("src/b.rs", "\nuse super::a::A; pub struct B(A);"),
        ];
        let found = found(&files, Scope::All);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].key, "crates/sync/one/src/a.rs crates/sync/one/src/b.rs");
        assert_eq!(
            found[0].details,
            [
                "crates/sync/one/src/a.rs:1: names crates/sync/one/src/b.rs",
                "crates/sync/one/src/b.rs:2: names crates/sync/one/src/a.rs",
            ]
        );
    }

    #[test]
    fn circle_of_three_files_found() {
        let files = [
            ("src/lib.rs", "mod a; mod b; mod c; use a::A;"),
            ("src/a.rs", "use crate::b::{self as other, B as Other}; pub struct A(Other);"),
            ("src/b.rs", "pub struct B(crate::c::C);"),
            ("src/c.rs", "use crate::{a::*}; pub struct C(A);"),
        ];
        assert_eq!(circles_of(&files), ["a.rs b.rs c.rs"]);
    }

    #[test]
    fn circle_through_super_found() {
        let files = [
            ("src/lib.rs", "mod a;"),
            ("src/a/mod.rs", "mod b; pub const A: u8 = 1; fn call() { b::f() }"),
            ("src/a/b.rs", "pub fn f() { let _ = super::A; }"),
        ];
        assert_eq!(circles_of(&files), ["a/b.rs a/mod.rs"]);
        assert!(found(&files, Scope::WithoutAncestors).is_empty());
    }

    #[test]
    fn circle_through_re_export_found() {
        let files = [
            ("src/lib.rs", "mod a; mod b; pub use b::{B, *};"),
            ("src/a.rs", "use crate::B; pub struct A(B);"),
            ("src/b.rs", "pub struct B(Option<Box<crate::a::A>>);"),
        ];
        assert_eq!(circles_of(&files), ["a.rs b.rs"]);
        let glob = files.map(|(path, text)| (path, text.replace("{B, *}", "*")));
        let glob = glob.each_ref().map(|(path, text)| (*path, text.as_str()));
        assert_eq!(circles_of(&glob), ["a.rs b.rs"]);
    }

    #[test]
    fn circle_by_paths_alone_found() {
        for text in [
            "pub fn f() { println!(\"{}\", crate::b::g()) }",
            "pub fn f() -> impl Fn() -> crate::b::B { todo!() }",
            "#[arg(help = crate::b::g())] pub struct A;",
            "pub fn f() { use crate::b; b::g() }",
            "mod inner { fn f() { super::super::b::g() } }",
            "macro_rules! f { () => { $crate::b::g() } }",
            "fn f() { vec![..crate::b::g()] }",
        ] {
            let files = [
                ("src/lib.rs", "mod a; mod b;"),
                ("src/a.rs", text),
                ("src/b.rs", "pub struct B; pub fn g() {} impl crate::a::T for B {}"),
            ];
            let a = format!("{text} pub trait T {{}}");
            let files =
                files.map(|(path, text)| (path, if path == "src/a.rs" { &a } else { text }));
            assert_eq!(circles_of(&files), ["a.rs b.rs"], "{text}");
        }
    }

    #[test]
    fn siblings_through_parent_are_no_circle() {
        let files = [
            ("src/lib.rs", "mod a;"),
            ("src/a/mod.rs", "mod b; mod c; mod d; pub use b::B; pub use c::C; pub use d::D;"),
            ("src/a/b.rs", "use super::C; pub struct B(C);"),
            ("src/a/c.rs", "use crate::a::D; pub struct C(D);"),
            ("src/a/d.rs", "pub struct D;"),
        ];
        assert_eq!(circles_of(&files), NONE);
    }

    #[test]
    fn re_exporting_parent_is_no_circle() {
        let files = [
            ("src/lib.rs", "mod a; pub use a::A; pub struct Error;"),
            ("src/a.rs", "use crate::Error; pub struct A(Error);"),
        ];
        assert_eq!(circles_of(&files), NONE);
        let used = [("src/lib.rs", "mod a; pub use a::A; pub struct Error(A);"), files[1]];
        assert_eq!(circles_of(&used), ["a.rs lib.rs"]);
    }

    #[test]
    fn tests_make_no_circle() {
        let files = [
            ("src/lib.rs", "mod a; mod b; #[cfg(test)] mod tests;"),
            ("src/a.rs", "use crate::b::B; pub struct A(B); #[cfg(test)] mod tests;"),
            (
                "src/b.rs",
                "pub struct B; impl B { #[cfg(test)] fn f() -> crate::a::A { todo!() } } \
                 #[cfg(test)] mod tests { use crate::a::A; } #[cfg(all(test, unix))] use crate::a::A;",
            ),
            ("src/tests.rs", "mod deep; pub struct T(deep::D);"),
            ("src/tests/deep.rs", "pub struct D(super::T);"),
            ("src/a/tests.rs", "use crate::a::A;"),
            ("tests/it.rs", "mod common; pub struct I(common::C);"),
            ("tests/common/mod.rs", "pub struct C(crate::I);"),
        ];
        assert_eq!(circles_of(&files), NONE);
    }

    #[test]
    fn names_alone_are_no_circle() {
        let files = [
            ("src/lib.rs", "pub mod a; pub mod b; use ::b::g as h; pub fn x() { h(1) }"),
            ("src/a.rs", "use crate::b; pub fn f(a: u8) { b::g(a); }"),
            // A variable, a field, a method and another crate have the name of a module.
            (
                "src/b.rs",
                "pub fn g(a: u8) { crate::x(); let b = a; x.a(b.a); ::a::f(); println!(\"{}\", x.a); }",
            ),
        ];
        assert_eq!(circles_of(&files), NONE);
    }

    #[test]
    fn imports_of_themselves_end() {
        let files = [
            ("src/lib.rs", "mod a; mod b; pub use a::*; pub use b::*; use x::x;"),
            ("src/a.rs", "pub use crate::b::*; use crate::Missing;"),
            ("src/b.rs", "pub use crate::a::*; use crate::Missing as Other;"),
        ];
        assert_eq!(circles_of(&files), NONE);
    }
}

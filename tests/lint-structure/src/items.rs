// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collects the functions and types of a file, as the checks `sizes` and `names` read them.

use std::path::Path;

use syn::visit::{self, Visit};
use syn::{
    Block, Fields, ImplItem, ImplItemFn, Item, ItemFn, ItemImpl, ItemMod, ItemTrait, Meta,
    Signature, TraitItemFn, Type, Visibility,
};

use crate::syntax;
use crate::workspace::Source;

/// The functions and types of a file.
#[derive(Default)]
pub struct Items {
    pub functions: Vec<Function>,
    pub types: Vec<Definition>,
}

/// A function with a body, or one that a trait declares.
pub struct Function {
    pub name: String,
    /// With its type, its trait or the name of its file.
    pub qualified: String,
    pub line: usize,
    /// From `fn` to the closing brace.
    pub lines: usize,
    /// The trait that it implements.
    pub implemented: Option<String>,
    pub is_in_tests: bool,
    /// The function has `#[test]`.
    pub is_test: bool,
}

/// A struct, enum, union, trait or type alias.
pub struct Definition {
    pub name: String,
    pub line: usize,
    pub is_public: bool,
    pub is_trait: bool,
    pub is_in_tests: bool,
    /// Named fields of a struct.
    pub fields: usize,
    /// clap or serde fills the struct in.
    pub is_parsed: bool,
}

/// Derives that make a struct parsed configuration.
const PARSED: [&str; 3] = ["Args", "Deserialize", "Parser"];

impl Items {
    /// The items of a file.
    pub fn of_source(source: &Source) -> Self {
        let mut collector = Collector {
            items: Self::default(),
            owner: file_name(&source.path),
            implemented: None,
            is_in_tests: source.is_test,
        };
        collector.visit_file(&source.file);
        collector.items
    }
}

/// The name of the module that a file holds; for a root or `mod.rs`, that of the directory.
fn file_name(path: &str) -> String {
    let names: Vec<&str> = path.split('/').filter(|name| *name != "src").collect();
    let stem = Path::new(path).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    match stem.as_str() {
        "lib" | "main" | "mod" if names.len() > 1 => names[names.len() - 2].to_owned(),
        _ => stem,
    }
}

struct Collector {
    items: Items,
    /// The type, trait or module in front of a function's name.
    owner: String,
    implemented: Option<String>,
    is_in_tests: bool,
}

impl Collector {
    fn within(
        &mut self,
        owner: String,
        implemented: Option<String>,
        visit: impl FnOnce(&mut Self),
    ) {
        let outer = std::mem::replace(&mut self.owner, owner);
        let outer_trait = std::mem::replace(&mut self.implemented, implemented);
        visit(self);
        self.owner = outer;
        self.implemented = outer_trait;
    }

    fn function(
        &mut self,
        attributes: &[syn::Attribute],
        signature: &Signature,
        body: Option<&Block>,
    ) {
        let line = signature.fn_token.span.start().line;
        let end = body.map_or(line, |body| body.brace_token.span.close().end().line);
        let name = signature.ident.to_string();
        self.items.functions.push(Function {
            qualified: format!("{}::{name}", self.owner),
            name,
            line,
            lines: end + 1 - line,
            implemented: self.implemented.clone(),
            is_in_tests: self.is_in_tests || syntax::is_for_tests(attributes),
            is_test: attributes.iter().any(syntax::is_test),
        });
    }

    fn definition(&mut self, item: &Item) {
        let (name, visibility) = match item {
            Item::Struct(item) => (&item.ident, &item.vis),
            Item::Enum(item) => (&item.ident, &item.vis),
            Item::Union(item) => (&item.ident, &item.vis),
            Item::Trait(item) => (&item.ident, &item.vis),
            Item::Type(item) => (&item.ident, &item.vis),
            _ => return,
        };
        let fields = match item {
            Item::Struct(item) => match &item.fields {
                Fields::Named(fields) => fields.named.len(),
                _ => 0,
            },
            _ => 0,
        };
        self.items.types.push(Definition {
            name: name.to_string(),
            line: name.span().start().line,
            is_public: matches!(visibility, Visibility::Public(_)),
            is_trait: matches!(item, Item::Trait(_)),
            is_in_tests: self.is_in_tests,
            fields,
            is_parsed: is_parsed(syntax::attributes(item)),
        });
    }
}

impl<'a> Visit<'a> for Collector {
    fn visit_item(&mut self, item: &'a Item) {
        let outer = self.is_in_tests;
        self.is_in_tests |= syntax::is_for_tests(syntax::attributes(item));
        self.definition(item);
        visit::visit_item(self, item);
        self.is_in_tests = outer;
    }

    fn visit_item_mod(&mut self, item: &'a ItemMod) {
        let name = item.ident.to_string();
        self.within(name, None, |collector| visit::visit_item_mod(collector, item));
    }

    fn visit_item_impl(&mut self, item: &'a ItemImpl) {
        let owner = match &*item.self_ty {
            Type::Path(path) => last(&path.path),
            _ => self.owner.clone(),
        };
        let implemented = item.trait_.as_ref().map(|one| last(&one.0));
        self.within(owner, implemented, |collector| visit::visit_item_impl(collector, item));
    }

    fn visit_item_trait(&mut self, item: &'a ItemTrait) {
        let name = item.ident.to_string();
        self.within(name, None, |collector| visit::visit_item_trait(collector, item));
    }

    fn visit_item_fn(&mut self, item: &'a ItemFn) {
        self.function(&item.attrs, &item.sig, Some(&item.block));
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item(&mut self, item: &'a ImplItem) {
        let outer = self.is_in_tests;
        self.is_in_tests |= syntax::is_for_tests(syntax::impl_attributes(item));
        visit::visit_impl_item(self, item);
        self.is_in_tests = outer;
    }

    fn visit_impl_item_fn(&mut self, item: &'a ImplItemFn) {
        self.function(&item.attrs, &item.sig, Some(&item.block));
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'a TraitItemFn) {
        self.function(&item.attrs, &item.sig, item.default.as_ref());
        visit::visit_trait_item_fn(self, item);
    }
}

fn last(path: &syn::Path) -> String {
    path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default()
}

fn is_parsed(attributes: &[syn::Attribute]) -> bool {
    let mut found = false;
    for attribute in attributes.iter().filter(|one| one.path().is_ident("derive")) {
        if let Meta::List(list) = &attribute.meta {
            syntax::paths(list.tokens.clone(), &mut |path, _| {
                found |= path.last().is_some_and(|name| PARSED.contains(&name.as_str()));
            });
        }
    }
    found
}

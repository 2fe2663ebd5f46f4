// SPDX-License-Identifier: MIT OR Apache-2.0
//! Syntax that several checks read: code for tests, and names in token streams.

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use syn::{Attribute, Expr, Lit, Meta};

/// `#[test]`, `#[tokio::test]`, or a `#[cfg]` that names `test`.
pub fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_cfg = attribute.path().is_ident("cfg");
        is_test(attribute)
            || is_cfg
                && matches!(&attribute.meta, Meta::List(list) if names_test(list.tokens.clone()))
    })
}

/// `#[test]` or `#[tokio::test]`.
pub fn is_test(attribute: &Attribute) -> bool {
    attribute.path().segments.last().is_some_and(|last| last.ident == "test")
}

/// Whether a `cfg` predicate names `test` outside of `not(…)`.
fn names_test(predicate: TokenStream) -> bool {
    let mut negated = false;
    for token in predicate {
        let found = match &token {
            TokenTree::Ident(name) => name == "test",
            TokenTree::Group(group) => !negated && names_test(group.stream()),
            _ => false,
        };
        if found {
            return true;
        }
        negated = matches!(token, TokenTree::Ident(name) if name == "not");
    }
    false
}

/// The value of `#[path = "…"]`.
pub fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    let meta = attributes.iter().find(|attribute| attribute.path().is_ident("path"))?;
    let Meta::NameValue(value) = &meta.meta else { return None };
    match &value.value {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Str(text) => Some(text.value()),
            _ => None,
        },
        _ => None,
    }
}

/// The attributes of any item.
pub fn attributes(item: &syn::Item) -> &[Attribute] {
    use syn::Item;
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The attributes of an item of an `impl` block.
pub fn impl_attributes(item: &syn::ImplItem) -> &[Attribute] {
    match item {
        syn::ImplItem::Const(item) => &item.attrs,
        syn::ImplItem::Fn(item) => &item.attrs,
        syn::ImplItem::Macro(item) => &item.attrs,
        syn::ImplItem::Type(item) => &item.attrs,
        _ => &[],
    }
}

/// Calls `note` with each path in tokens, such as `crate::a::f`, and each name alone.
pub fn paths(tokens: TokenStream, note: &mut dyn FnMut(&[String], Span)) {
    let mut path: Vec<String> = Vec::new();
    let mut start = Span::call_site();
    // Colons since the last name, and whether a name would be a field or method.
    let (mut colons, mut is_member) = (0, false);
    for token in tokens {
        match token {
            TokenTree::Ident(name) => {
                if colons != 2 || path.is_empty() {
                    finish(&mut path, start, note);
                    start = name.span();
                }
                if !is_member && (colons == 2) != path.is_empty() {
                    path.push(name.to_string());
                }
                (colons, is_member) = (0, false);
            }
            TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
            TokenTree::Punct(mark) => {
                finish(&mut path, start, note);
                // Two dots are a range.
                (colons, is_member) = (0, mark.as_char() == '.' && !is_member);
            }
            TokenTree::Group(group) => {
                let is_brace = group.delimiter() == Delimiter::Brace;
                let prefix =
                    if is_brace && colons == 2 { std::mem::take(&mut path) } else { Vec::new() };
                finish(&mut path, start, note);
                paths(group.stream(), &mut |rest, at| note(&[&prefix[..], rest].concat(), at));
                (colons, is_member) = (0, false);
            }
            TokenTree::Literal(_) => {
                finish(&mut path, start, note);
                (colons, is_member) = (0, false);
            }
        }
    }
    finish(&mut path, start, note);
}

fn finish(path: &mut Vec<String>, start: Span, note: &mut dyn FnMut(&[String], Span)) {
    if !path.is_empty() {
        note(path, start);
        path.clear();
    }
}

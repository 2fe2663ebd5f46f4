// SPDX-License-Identifier: MIT OR Apache-2.0
//! The modules of one library or program without tests, and the items that paths in them name. Follows
//! imports and re-exports to the module that defines the item.

use std::collections::BTreeMap;

use syn::visit::{self, Visit};
use syn::{Ident, Item, UseTree, Visibility};

use crate::syntax;
use crate::workspace::Source;

/// The modules of one library or program. Module 0 is its root.
pub struct Modules {
    all: Vec<Module>,
}

struct Module {
    /// Index of the source file.
    source: usize,
    parent: usize,
    names: BTreeMap<String, Vec<Binding>>,
    /// Paths that are imported whole.
    globs: Vec<Vec<String>>,
}

/// The meaning of a name in a module.
enum Binding {
    Module(usize),
    /// Defined in the module itself.
    Item,
    Import(Vec<String>),
}

/// The end of a path.
#[derive(Clone, Copy, PartialEq)]
pub enum Target {
    Module(usize),
    /// An item that this module defines.
    Item(usize),
}

/// A path of a `use` declaration.
pub struct Import {
    pub path: Vec<String>,
    /// The name that it gets here; none for a glob.
    pub name: Option<Ident>,
    pub line: usize,
}

impl Modules {
    /// The modules below a root file.
    pub fn new(sources: &[Source], root: usize) -> Self {
        let mut modules = Self { all: Vec::new() };
        modules.add(sources, root, 0, &sources[root].file.items, &mut Vec::new());
        modules
    }

    /// The outermost module of each file, with the file.
    pub fn files(&self) -> impl Iterator<Item = (usize, usize)> {
        self.all.iter().enumerate().filter_map(|(module, one)| {
            let is_outermost = module == 0 || self.all[one.parent].source != one.source;
            is_outermost.then_some((module, one.source))
        })
    }

    /// The source file of a module.
    pub fn source(&self, module: usize) -> usize {
        self.all[module].source
    }

    /// The modules around a module, from the inside.
    pub fn around(&self, module: usize) -> impl Iterator<Item = usize> {
        let mut at = module;
        std::iter::from_fn(move || {
            let is_root = at == 0;
            at = self.all[at].parent;
            (!is_root).then_some(at)
        })
    }

    /// The child module of this name.
    pub fn child(&self, module: usize, name: &str) -> Option<usize> {
        self.all[module].names.get(name)?.iter().find_map(|binding| match binding {
            Binding::Module(child) => Some(*child),
            _ => None,
        })
    }

    /// The end of a path in a module; none for other crates, local variables and generic parameters.
    pub fn resolve(&self, module: usize, path: &[String]) -> Option<Target> {
        self.follow(module, path, &mut Vec::new())
    }

    fn add(
        &mut self,
        sources: &[Source],
        source: usize,
        parent: usize,
        items: &[Item],
        around: &mut Vec<String>,
    ) -> usize {
        let module = self.all.len();
        let (names, globs) = (BTreeMap::new(), Vec::new());
        self.all.push(Module { source, parent, names, globs });
        for item in items {
            if syntax::is_for_tests(syntax::attributes(item)) {
                continue;
            }
            match item {
                Item::Mod(item) => {
                    let name = item.ident.to_string();
                    around.push(name.clone());
                    let child = match &item.content {
                        Some((_, items)) => Some(self.add(sources, source, module, items, around)),
                        None => sources[source].modules.get(around).map(|&file| {
                            let items = &sources[file].file.items;
                            self.add(sources, file, module, items, &mut Vec::new())
                        }),
                    };
                    around.pop();
                    if let Some(child) = child {
                        self.bind(module, name, Binding::Module(child));
                    }
                }
                Item::Use(item) if item.leading_colon.is_none() => {
                    self.import(module, &item.tree);
                }
                _ => {
                    for name in defined(item) {
                        self.bind(module, name.to_string(), Binding::Item);
                    }
                    // Imports in a function count for its module: names seldom differ there.
                    let mut inner = InnerImports(Vec::new());
                    inner.visit_item(item);
                    inner.0.iter().for_each(|tree| self.import(module, tree));
                }
            }
        }
        module
    }

    /// Adds the names of a `use` declaration to a module.
    fn import(&mut self, module: usize, tree: &UseTree) {
        for Import { path, name, .. } in imports(tree) {
            match name {
                Some(name) => self.bind(module, name.to_string(), Binding::Import(path)),
                None => self.all[module].globs.push(path),
            }
        }
    }

    fn bind(&mut self, module: usize, name: String, binding: Binding) {
        self.all[module].names.entry(name).or_default().push(binding);
    }

    /// `seen` has the names on the way here: an import of a name through itself ends there.
    fn follow(
        &self,
        module: usize,
        path: &[String],
        seen: &mut Vec<(usize, String)>,
    ) -> Option<Target> {
        let mut at = Target::Module(module);
        for (index, name) in path.iter().enumerate() {
            let Target::Module(module) = at else { break };
            let is_last = index + 1 == path.len();
            at = match name.as_str() {
                "crate" => Target::Module(0),
                "self" => at,
                "super" => Target::Module(self.all[module].parent),
                name => self.look_up(module, name, is_last, seen)?,
            };
        }
        Some(at)
    }

    /// A last name is an item, if there is one; a name before `::` is a module.
    fn look_up(
        &self,
        module: usize,
        name: &str,
        is_last: bool,
        seen: &mut Vec<(usize, String)>,
    ) -> Option<Target> {
        if seen.iter().any(|(at, one)| *at == module && one == name) {
            return None;
        }
        seen.push((module, name.to_owned()));
        let bindings = self.all[module].names.get(name).into_iter().flatten();
        let mut found: Vec<Target> = Vec::new();
        for binding in bindings {
            found.extend(match binding {
                Binding::Module(child) => Some(Target::Module(*child)),
                Binding::Item => Some(Target::Item(module)),
                Binding::Import(path) => self.follow(module, path, seen),
            });
        }
        if found.is_empty() {
            for path in &self.all[module].globs {
                if let Some(Target::Module(other)) = self.follow(module, path, seen) {
                    found.extend(self.look_up(other, name, is_last, seen));
                }
            }
        }
        seen.pop();
        let wanted = found.iter().find(|one| matches!(one, Target::Item(_)) == is_last);
        wanted.or(found.first()).copied()
    }
}

/// The `use` declarations in the bodies of functions.
struct InnerImports<'a>(Vec<&'a UseTree>);

impl<'a> Visit<'a> for InnerImports<'a> {
    fn visit_item(&mut self, item: &'a Item) {
        match item {
            _ if syntax::is_for_tests(syntax::attributes(item)) => {}
            Item::Mod(_) => {}
            Item::Use(item) if item.leading_colon.is_none() => self.0.push(&item.tree),
            _ => visit::visit_item(self, item),
        }
    }
}

/// The names that an item defines.
fn defined(item: &Item) -> Vec<&Ident> {
    match item {
        Item::Const(item) => vec![&item.ident],
        Item::Enum(item) => vec![&item.ident],
        Item::Fn(item) => vec![&item.sig.ident],
        Item::Macro(item) => item.ident.iter().collect(),
        Item::Static(item) => vec![&item.ident],
        Item::Struct(item) => vec![&item.ident],
        Item::Trait(item) => vec![&item.ident],
        Item::Type(item) => vec![&item.ident],
        Item::Union(item) => vec![&item.ident],
        Item::ForeignMod(item) => item.items.iter().filter_map(foreign).collect(),
        _ => Vec::new(),
    }
}

fn foreign(item: &syn::ForeignItem) -> Option<&Ident> {
    match item {
        syn::ForeignItem::Fn(item) => Some(&item.sig.ident),
        syn::ForeignItem::Static(item) => Some(&item.ident),
        syn::ForeignItem::Type(item) => Some(&item.ident),
        _ => None,
    }
}

/// Whether a `use` declaration exports names to other modules.
pub fn is_re_export(visibility: &Visibility) -> bool {
    !matches!(visibility, Visibility::Inherited)
}

/// The paths of a `use` declaration, with its groups expanded.
pub fn imports(tree: &UseTree) -> Vec<Import> {
    let mut found = Vec::new();
    flatten(tree, &mut Vec::new(), &mut found);
    found
}

fn flatten(tree: &UseTree, path: &mut Vec<String>, found: &mut Vec<Import>) {
    let mut add = |last: Option<&Ident>, name: Option<&Ident>, line| {
        let mut path = path.clone();
        path.extend(last.map(ToString::to_string));
        let name = name.or(last).cloned();
        found.push(Import { path, name, line });
    };
    match tree {
        UseTree::Path(one) => {
            path.push(one.ident.to_string());
            flatten(&one.tree, path, found);
            path.pop();
        }
        UseTree::Name(one) if one.ident == "self" => {
            let line = one.ident.span().start().line;
            let name = path.last().map(|last| Ident::new(last, one.ident.span()));
            found.push(Import { path: path.clone(), name, line });
        }
        UseTree::Name(one) => add(Some(&one.ident), None, one.ident.span().start().line),
        UseTree::Rename(one) => {
            add(Some(&one.ident), Some(&one.rename), one.ident.span().start().line);
        }
        UseTree::Glob(one) => add(None, None, one.star_token.spans[0].start().line),
        UseTree::Group(group) => group.items.iter().for_each(|one| flatten(one, path, found)),
    }
}

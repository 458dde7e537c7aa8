//! Lists the crate's public methods, from its sources.

use std::collections::BTreeSet;
use std::path::Path;
use syn::visit::{self, Visit};

/// Returns the public methods (`Type::method`) of these types in a crate's sources that are `wanted`, without tests.
pub fn methods(
    sources: &Path,
    types: &[&str],
    wanted: impl Fn(&str, &syn::Signature) -> bool,
) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![sources.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir().expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("a source");
                let file = syn::parse_file(&text)
                    .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                Methods { types, wanted: &wanted, found: &mut found }.visit_file(&file);
            }
        }
    }
    found
}

/// Returns whether a parameter's type names one of these types, however it is wrapped.
pub fn takes(signature: &syn::Signature, types: &[&str]) -> bool {
    struct Names<'n>(&'n [&'n str], bool);

    impl Visit<'_> for Names<'_> {
        fn visit_ident(&mut self, ident: &syn::Ident) {
            self.1 |= self.0.iter().any(|name| ident == name);
        }
    }

    let mut names = Names(types, false);
    for input in &signature.inputs {
        if let syn::FnArg::Typed(parameter) = input {
            names.visit_type(&parameter.ty);
        }
    }
    names.1
}

struct Methods<'m> {
    types: &'m [&'m str],
    wanted: &'m dyn Fn(&str, &syn::Signature) -> bool,
    found: &'m mut BTreeSet<String>,
}

impl Visit<'_> for Methods<'_> {
    fn visit_item_mod(&mut self, module: &syn::ItemMod) {
        let is_test = |attribute: &syn::Attribute| {
            attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
        };
        if !module.attrs.iter().any(is_test) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_impl(&mut self, block: &syn::ItemImpl) {
        let syn::Type::Path(of) = &*block.self_ty else { return };
        let name = of.path.segments.last().expect("a type has a name").ident.to_string();
        if block.trait_.is_some() || !self.types.contains(&name.as_str()) {
            return;
        }
        for item in &block.items {
            if let syn::ImplItem::Fn(method) = item
                && matches!(method.vis, syn::Visibility::Public(_))
                && (self.wanted)(&name, &method.sig)
            {
                self.found.insert(format!("{name}::{}", method.sig.ident));
            }
        }
    }
}

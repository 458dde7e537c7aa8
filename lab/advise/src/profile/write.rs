//! Writes a profile as the TOML that people write.

use std::fmt::Write;

use toml_writer::{ToTomlKey, ToTomlValue, TomlKeyBuilder, TomlStringBuilder};

use super::{
    ALWAYS, Access, EVERYONE, Instances, Kind, Phase, Profile, Role, Row, TypeProfile, WorkBasis,
};

/// Lines are broken before this column if possible.
const WIDE: usize = 100;

pub(super) fn toml(profile: &Profile) -> String {
    let mut out = String::new();
    if let Some(machine) = &profile.machine {
        let _ = writeln!(out, "machine = {}", quoted(machine));
    }
    if let Some(cpus) = profile.cpus {
        let _ = writeln!(out, "cpus = {cpus}");
    }
    for of in &profile.types {
        of_type(of, &mut out);
    }
    out
}

fn of_type(of: &TypeProfile, out: &mut String) {
    let path = format!("types.{}", key(&of.name));
    let between = if out.is_empty() { "" } else { "\n" };
    let _ = writeln!(out, "{between}[{path}]");
    let _ = match of.instances {
        Instances::Shared => writeln!(out, "instances = \"shared\""),
        Instances::PerCpu => writeln!(out, "instances = \"per cpu\""),
        Instances::Row(Row { stride, begins }) => {
            let _ = writeln!(out, "instances = \"per cpu\"\nstride = {stride}");
            begins.map_or(Ok(()), |begins| writeln!(out, "begins = {begins}"))
        }
        Instances::Dealt(count) => writeln!(out, "instances = {count}"),
    };
    match &of.roles[..] {
        [role] if role.name == EVERYONE && role.share == 1.0 => {
            out.push_str(&timed(role));
            phases(&path, role, out);
        }
        roles => {
            for role in roles {
                let path = format!("{path}.roles");
                let _ = writeln!(out, "\n[[{path}]]\nname = {}", quoted(&role.name));
                let _ = write!(out, "share = {}\n{}", role.share, timed(role));
                phases(&path, role, out);
            }
        }
    }
}

/// Writes the time of an operation.
fn timed(role: &Role) -> String {
    match role.basis {
        WorkBasis::Stated => format!("work_ns = {}\n", role.work_ns),
        WorkBasis::Within { low, high } => format!("work_ns = [{low}, {high}]\n"),
        WorkBasis::Takes { ns, recording_ns: 0.0 } => format!("takes_ns = {ns}\n"),
        WorkBasis::Takes { ns, recording_ns } => {
            format!("takes_ns = {ns}\nrecording_ns = {recording_ns}\n")
        }
        WorkBasis::Alone { ns, takes_ns: None } => format!("alone_ns = {ns}\n"),
        WorkBasis::Alone { ns, takes_ns: Some(takes) } => {
            format!("takes_ns = {takes}\nalone_ns = {ns}\n")
        }
    }
}

fn phases(path: &str, role: &Role, out: &mut String) {
    let mut others = &role.phases[..];
    if let Some((first, rest)) = others.split_first()
        && first.name == ALWAYS
        && first.times == 1.0
    {
        others = rest;
        let _ = writeln!(out, "\n[{path}.fields]");
        for (field, rates) in fields(first) {
            let _ = writeln!(out, "{} = {}", key(field), rates_of(&rates));
        }
    }
    for phase in others {
        let _ = writeln!(out, "\n[[{path}.phases]]\nname = {}", quoted(&phase.name));
        let _ = writeln!(out, "times = {}", phase.times);
        let fields: Vec<String> = fields(phase)
            .iter()
            .map(|(field, rates)| format!("{} = {}", key(field), rates_of(rates)))
            .collect();
        let line = fields.join(", ");
        if line.len() < WIDE {
            let _ = writeln!(out, "fields = {{ {line} }}");
        } else {
            let _ = writeln!(out, "\n[{path}.phases.fields]\n{}", fields.join("\n"));
        }
    }
}

/// A field's rates by kind, in the order in which fields are first touched.
type Rates<'p> = (&'p str, [f64; 3]);

fn fields(phase: &Phase) -> Vec<Rates<'_>> {
    let mut fields: Vec<Rates> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for Access { field, kind, times } in &phase.accesses {
        let place = *places.entry(field.as_str()).or_insert_with(|| {
            fields.push((field, [0.0; 3]));
            fields.len() - 1
        });
        fields[place].1[*kind as usize] += times;
    }
    fields
}

fn rates_of(rates: &[f64; 3]) -> String {
    let kinds = [Kind::Load, Kind::Store, Kind::Atomic].into_iter().zip(rates);
    let words: Vec<String> = kinds
        .filter(|(_, rate)| **rate > 0.0)
        .map(|(kind, rate)| format!("{} = {rate}", kind.word()))
        .collect();
    format!("{{ {} }}", words.join(", "))
}

/// Writes a key, without quotes if TOML allows it.
pub(super) fn key(name: &str) -> String {
    let key = TomlKeyBuilder::new(name);
    key.as_unquoted().unwrap_or_else(|| key.as_basic()).to_toml_key()
}

fn quoted(text: &str) -> String {
    TomlStringBuilder::new(text).as_basic().to_toml_value()
}

//! The file of the option `-a`: servers and namespaces that a daemon has from its start on.
//!
//! The schema is that of release 615's manual. All that is wrong with a file is told at once, each with its line, and a
//! word that is not known with those that may be meant; then nothing of it is done. What only a later driver's servers can
//! do is a mistake, too: a site that asks for it must not believe that it has it.

#![expect(clippy::wildcard_enum_match_arm, reason = "a value of any other type is wrong")]

use super::faults::{ConfigFault, Faults, Lines, line_at, unknown};
use remps_proto::admin::limits::DeviceKey;
use remps_proto::admin::module::change::{devices, memory, percentage, priority};
use remps_proto::admin::module::{DEFAULT_NAMESPACE, Limits, is_name, needs};
use std::collections::BTreeMap;
use toml::de::DeTable;
use toml::{Table, Value};

/// The one version of the schema.
pub(super) const VERSION: &str = "1.0";
const LIMITS: [&str; 3] = ["pinned_memory_limit", "active_thread_percentage", "client_priority"];

/// A server of the file.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct PlannedServer {
    /// The user that it serves; `None` is whoever reaches it.
    pub uid: Option<u32>,
    /// The devices that it may use; none is all.
    pub devices: Vec<DeviceKey>,
    /// Its namespaces, `default` among them, each with what is said of it.
    pub namespaces: BTreeMap<String, Limits>,
}

/// What the file says, by the servers' names.
pub(crate) type Plan = BTreeMap<String, PlannedServer>;

/// Reads its text.
///
/// # Errors
/// Everything that is wrong with it, in the order of its lines.
pub(crate) fn parse(text: &str, installed: Option<u32>) -> Result<Plan, Vec<ConfigFault>> {
    let (document, syntax) = DeTable::parse_recoverable(text);
    let syntax_fault = |error: &toml::de::Error| {
        let line = error.span().map(|span| line_at(text, span.start));
        ConfigFault { line, key: String::new(), what: error.message().to_owned() }
    };
    if let Some(error) = syntax.first() {
        return Err(vec![syntax_fault(error)]);
    }
    let given: Table = toml::from_str(text).map_err(|error| vec![syntax_fault(&error)])?;
    let faults = Faults::new(Lines::of(text, document.get_ref()));
    let mut reader = Reader { faults, installed };
    let plan = reader.file(&given);
    match reader.faults.into_sorted() {
        found if found.is_empty() => Ok(plan),
        found => Err(found),
    }
}

/// Reads tables, and collects what is wrong.
struct Reader {
    faults: Faults,
    installed: Option<u32>,
}

impl Reader {
    /// Notes each key of a table that it must not have.
    fn only(&mut self, table: &Table, prefix: &str, known: &[&str]) {
        for key in table.keys().filter(|key| !known.contains(&key.as_str())) {
            self.faults.add(&format!("{prefix}{key}"), unknown(key, known.iter().copied(), "key"));
        }
    }

    fn table<'a>(&mut self, table: &'a Table, prefix: &str, key: &str) -> Option<&'a Table> {
        let value = table.get(key)?;
        let found = value.as_table();
        if found.is_none() {
            self.faults.add(&format!("{prefix}{key}"), "must be a table");
        }
        found
    }

    /// What needs a later driver.
    fn needs(&mut self, key: &str, what: &'static str, since: u32) {
        let need = needs::Need { module: remps_proto::admin::CommandName::Server, what, since };
        self.faults.add(key, need.refusal(self.installed));
    }

    fn file(&mut self, given: &Table) -> Plan {
        self.only(given, "", &["schema_version", "servers", "features"]);
        match given.get("schema_version") {
            Some(Value::String(version)) if version == VERSION => {}
            Some(_) => self.faults.add("schema_version", format!("must be \"{VERSION}\"")),
            None => self.faults.add("schema_version", format!("is missing; it must be \"{VERSION}\"")),
        }
        if let Some(features) = self.table(given, "", "features") {
            self.features(features);
        }
        let mut plan = Plan::new();
        for (name, value) in self.table(given, "", "servers").into_iter().flatten() {
            let prefix = format!("servers.{name}");
            match value.as_table() {
                _ if !is_name(name) => self.bad_name(&prefix),
                Some(server) => drop(plan.insert(name.clone(), self.server(server, &format!("{prefix}.")))),
                None => self.faults.add(&prefix, "must be a table"),
            }
        }
        plan
    }

    fn bad_name(&mut self, key: &str) {
        self.faults.add(key, "a name has 1 to 64 lower-case letters, digits and underscores");
    }

    fn server(&mut self, given: &Table, prefix: &str) -> PlannedServer {
        let own = ["allowed_devices", "uid", "locality_domains", "namespaces", "devices"];
        self.only(given, prefix, &[LIMITS.as_slice(), own.as_slice()].concat());
        let uid = given.get("uid").and_then(|value| {
            let uid = value.as_integer().and_then(|uid| u32::try_from(uid).ok()).filter(|uid| *uid != u32::MAX);
            if uid.is_none() {
                self.faults.add(&format!("{prefix}uid"), "must be a user's number");
            }
            uid
        });
        match given.get("locality_domains") {
            None | Some(Value::Boolean(false)) => {}
            Some(Value::Boolean(true)) => {
                self.needs(&format!("{prefix}locality_domains"), "locality_domains = true", needs::PARTITIONS_SINCE);
            }
            Some(_) => self.faults.add(&format!("{prefix}locality_domains"), "must be true or false"),
        }
        for (number, device) in self.entries(given, prefix, "devices").into_iter().enumerate() {
            self.device(device, &format!("{prefix}devices[{}].", number + 1));
        }
        let mut namespaces = BTreeMap::from([(DEFAULT_NAMESPACE.to_owned(), self.limits(given, prefix))]);
        for (name, value) in self.table(given, prefix, "namespaces").into_iter().flatten() {
            let key = format!("{prefix}namespaces.{name}");
            match value.as_table() {
                _ if !is_name(name) => self.bad_name(&key),
                Some(space) => {
                    let inner = format!("{key}.");
                    self.only(space, &inner, &LIMITS);
                    let limits = self.limits(space, &inner);
                    // What is said of `default` goes before what is said of the server, which is the same.
                    let before = namespaces.get(name).copied().unwrap_or_default();
                    namespaces.insert(name.clone(), limits.or(before));
                }
                None => self.faults.add(&key, "must be a table"),
            }
        }
        PlannedServer { uid, devices: self.allowed_devices(given, prefix), namespaces }
    }

    fn entries<'a>(&mut self, given: &'a Table, prefix: &str, key: &str) -> Vec<&'a Table> {
        let Some(value) = given.get(key) else { return Vec::new() };
        let entries = value.as_array().map(|entries| entries.iter().map(Value::as_table).collect::<Option<Vec<_>>>());
        entries.flatten().unwrap_or_else(|| {
            self.faults.add(&format!("{prefix}{key}"), format!("is written as [[{prefix}{key}]]"));
            Vec::new()
        })
    }

    /// A device with partitions, of which none can be made.
    fn device(&mut self, given: &Table, prefix: &str) {
        self.only(given, prefix, &["uuid", "sm_partitions"]);
        if !matches!(given.get("uuid"), Some(Value::String(uuid)) if uuid.starts_with("GPU-") || uuid.starts_with("MIG-"))
        {
            self.faults.add(&format!("{prefix}uuid"), "must be a device's UUID");
        }
        for (number, partition) in self.entries(given, prefix, "sm_partitions").into_iter().enumerate() {
            let inner = format!("{prefix}sm_partitions[{}].", number + 1);
            self.only(partition, &inner, &["name", "chunks", "include_remainder"]);
            if !matches!(partition.get("name"), Some(Value::String(name)) if is_name(name)) {
                self.bad_name(&format!("{inner}name"));
            }
            if !matches!(partition.get("chunks"), Some(Value::Integer(chunks)) if *chunks > 0) {
                self.faults.add(&format!("{inner}chunks"), "must be a whole number from 1 on");
            }
            if !matches!(partition.get("include_remainder"), None | Some(Value::Boolean(_))) {
                self.faults.add(&format!("{inner}include_remainder"), "must be true or false");
            }
            self.needs(inner.trim_end_matches('.'), "an SM partition", needs::PARTITIONS_SINCE);
        }
    }

    fn allowed_devices(&mut self, given: &Table, prefix: &str) -> Vec<DeviceKey> {
        let Some(value) = given.get("allowed_devices") else { return Vec::new() };
        let one = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Integer(ordinal) => Some(ordinal.to_string()),
            _ => None,
        };
        // The manual shows the option's text; a list says the same.
        let text = match value {
            Value::Array(all) => all.iter().map(one).collect::<Option<Vec<_>>>().map(|all| all.join(",")),
            other => one(other),
        };
        let found = text.and_then(|text| devices(text.as_bytes()));
        found.unwrap_or_else(|| {
            self.faults.add(&format!("{prefix}allowed_devices"), "must be ordinals and UUIDs, none of them twice");
            Vec::new()
        })
    }

    fn limits(&mut self, given: &Table, prefix: &str) -> Limits {
        Limits {
            memory: self.limit(given, prefix, LIMITS[0], memory, "must be a size as \"4G\", in K, M or G"),
            percentage: self.limit(given, prefix, LIMITS[1], percentage, "must be a share from \"1\" to \"100\""),
            priority: self.limit(given, prefix, LIMITS[2], priority, "must be \"0\" or \"1\""),
        }
    }

    /// A limit, as the text that the command takes; a number says the same.
    fn limit<T>(
        &mut self,
        given: &Table,
        prefix: &str,
        key: &str,
        read: impl Fn(&[u8]) -> Option<T>,
        wanted: &str,
    ) -> Option<T> {
        let text = match given.get(key)? {
            Value::String(text) => text.clone(),
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            _ => String::new(),
        };
        let found = read(text.as_bytes());
        if found.is_none() {
            self.faults.add(&format!("{prefix}{key}"), wanted);
        }
        found
    }

    fn features(&mut self, given: &Table) {
        self.only(given, "features.", &["memacct", "context-share"]);
        for (name, known, what) in [
            ("memacct", ["enabled", "audit_log"], "memacct"),
            ("context-share", ["enabled", "default_socket"], "context-share"),
        ] {
            let Some(feature) = self.table(given, "features.", name) else { continue };
            let prefix = format!("features.{name}.");
            self.only(feature, &prefix, &known);
            match feature.get("enabled") {
                None | Some(Value::Boolean(false)) => {}
                Some(Value::Boolean(true)) => self.needs(&format!("{prefix}enabled"), what, needs::FEATURES_SINCE),
                Some(_) => self.faults.add(&format!("{prefix}enabled"), "must be true or false"),
            }
            if !matches!(feature.get("audit_log"), None | Some(Value::Boolean(_))) {
                self.faults.add(&format!("{prefix}audit_log"), "must be true or false");
            }
            if !matches!(feature.get("default_socket"), None | Some(Value::String(_))) {
                self.faults.add(&format!("{prefix}default_socket"), "must be a text");
            }
        }
    }
}

#[cfg(test)]
mod tests;

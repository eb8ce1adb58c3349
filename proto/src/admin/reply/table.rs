//! The answers that are tables, with the vendor's column widths.

/// A client in the table of `ps`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientRow {
    /// The client's pid as the daemon sees it.
    pub pid: u32,
    /// Its context id.
    pub id: u32,
    /// Its server's pid.
    pub server: u32,
    /// UUID of the device.
    pub device: String,
    /// Inode of its pid namespace; `None` when it cannot be read.
    pub namespace: Option<u64>,
    /// Its command line.
    pub command: String,
}

/// `GPU-` and as much of the UUID as `ps` shows.
const PS_UUID_LEN: usize = 22;

/// The table of `ps`, as one text; empty without clients. Blanks at the ends of lines are the vendor's.
#[must_use]
pub fn ps_table(rows: &[ClientRow]) -> Vec<String> {
    fn line(pid: &str, id: &str, server: &str, device: &str, namespace: &str, command: &str) -> String {
        format!("{pid:<10}{id:<10}{server:<15}{device:<26}{namespace:<15}{command:<15}")
    }
    if rows.is_empty() {
        return Vec::new();
    }
    let heading = line("PID", "ID", "SERVER", "DEVICE", "NAMESPACE", "COMMAND");
    let rows = rows.iter().map(|row| {
        let device: String = row.device.chars().take(PS_UUID_LEN).collect();
        let namespace = row.namespace.map_or_else(|| "-".to_owned(), |inode| inode.to_string());
        // A command line is the client's own choice: a line end in it must not make a row.
        let command: String = row.command.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        line(&row.pid.to_string(), &row.id.to_string(), &row.server.to_string(), &device, &namespace, &command)
    });
    std::iter::once(heading).chain(rows).collect()
}

/// Where a device sits on its bus.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PciAddress {
    /// Domain.
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device.
    pub device: u8,
    /// Function.
    pub function: u8,
}

impl std::fmt::Display for PciAddress {
    /// As the kernel and most tools write it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

/// A device in the table of `device_query`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceRow {
    /// Ordinal.
    pub ordinal: u32,
    /// Address.
    pub pci: PciAddress,
    /// UUID with its `GPU-`.
    pub uuid: String,
    /// Marketing name.
    pub name: String,
    /// `None` prints `N/A`.
    pub attributes: Option<String>,
}

/// `device_query`, as a table or, with `--csv`, the same columns separated by commas.
///
/// `title` is `Default` for the daemon's own view.
#[must_use]
pub fn device_query(title: &str, rows: &[DeviceRow], csv: bool) -> Vec<String> {
    let line = |[ordinal, pci, uuid, name, attributes]: [&str; 5]| {
        if csv {
            [ordinal, pci, uuid, name, attributes].join(",")
        } else {
            format!("{ordinal:<16}{pci:<15}{uuid:<42}{name:<34}{attributes}")
        }
    };
    let heading = line(["Device Ordinal", "PCI IDs", "UUID", "Name", "Attributes"]);
    let rows = rows.iter().map(|row| {
        let PciAddress { domain, bus, device, function } = row.pci;
        line([
            &row.ordinal.to_string(),
            // The vendor puts points where others put colons.
            &format!("{domain:04x}:{bus:02x}.{device:02x}.{function:02x}"),
            &row.uuid,
            &row.name,
            row.attributes.as_deref().unwrap_or("N/A"),
        ])
    });
    [title.to_owned(), heading].into_iter().chain(rows).collect()
}

/// The line that opens a device's clients in `get_device_client_list`.
#[must_use]
pub fn device_clients_heading(ordinal: u32, pci: PciAddress, name: &str) -> String {
    format!("[{ordinal}] {:02x}:{:02x}.{:x}, {name}", pci.bus, pci.device, pci.function)
}

/// A client of a device in `get_device_client_list`: `pid.context`.
#[must_use]
pub fn client_on_device(pid: u32, context: u32) -> String {
    format!("{pid}.{context}")
}

/// A static SM partition in `lspart`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionRow {
    /// Its id.
    pub id: String,
    /// Its chunks.
    pub chunks: u32,
    /// Its SMs.
    pub sms: u32,
    /// Whether it has clients.
    pub in_use: bool,
}

/// A device in `lspart`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SmDevice {
    /// UUID, shown up to its first dash after `GPU-`.
    pub uuid: String,
    /// Chunks in no partition.
    pub free_chunks: u32,
    /// Chunks in partitions.
    pub used_chunks: u32,
    /// SMs in no partition.
    pub free_sms: u32,
    /// SMs in partitions.
    pub used_sms: u32,
    /// The partitions.
    pub partitions: Vec<PartitionRow>,
}

/// `GPU-` and the first eight digits.
const LSPART_UUID_LEN: usize = 12;

/// `lspart`: two heading lines, then for each device its own row and one row a partition.
///
/// The layout is the one that Isaac ROS reads (third line: the device, fields 1 and 3 its free chunks and SMs; fourth
/// line: a partition when it starts with `GPU-`). The words of the headings are not measured.
#[must_use]
pub fn lspart(devices: &[SmDevice]) -> Vec<String> {
    fn line(device: &str, fields: [&str; 4]) -> String {
        let [a, b, c, d] = fields;
        format!("{device:<16}{a:<12}{b:<12}{c:<8}{d}").trim_end().to_owned()
    }
    let mut lines = vec![line("GPU", ["Free", "Used", "Free", "Used"]), line("", ["Chunks", "Chunks", "SMs", "SMs"])];
    for device in devices {
        let uuid: String = device.uuid.chars().take(LSPART_UUID_LEN).collect();
        let numbers = [device.free_chunks, device.used_chunks, device.free_sms, device.used_sms];
        let numbers = numbers.map(|number| number.to_string());
        lines.push(line(&uuid, numbers.each_ref().map(String::as_str)));
        for partition in &device.partitions {
            let (chunks, sms) = (partition.chunks.to_string(), partition.sms.to_string());
            let in_use = if partition.in_use { "Yes" } else { "No" };
            lines.push(line(&uuid, [&partition.id, &chunks, &sms, in_use]));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "GPU-3d6da830-3ec1-ba21-50e0-3be12cfc8eca";

    #[test]
    fn ps_looks_as_on_580() {
        let row = ClientRow {
            pid: 549,
            id: 2,
            server: 519,
            device: UUID.to_owned(),
            namespace: Some(4_026_531_836),
            command: "/tmp/t".to_owned(),
        };
        assert_eq!(
            ps_table(std::slice::from_ref(&row)),
            [
                "PID       ID        SERVER         DEVICE                    NAMESPACE      COMMAND        ",
                "549       2         519            GPU-3d6da830-3ec1-ba21    4026531836     /tmp/t         ",
            ]
        );
        let sly = ClientRow { command: "a\nb".to_owned(), ..row };
        assert!(ps_table(&[sly])[1].contains("a b"));
        assert!(ps_table(&[]).is_empty());
    }

    #[test]
    fn device_query_looks_as_on_580() {
        let row = DeviceRow {
            ordinal: 0,
            pci: PciAddress { domain: 0, bus: 0, device: 6, function: 0 },
            uuid: UUID.to_owned(),
            name: "NVIDIA H200".to_owned(),
            attributes: None,
        };
        assert_eq!(
            device_query("Default", std::slice::from_ref(&row), false),
            [
                "Default",
                "Device Ordinal  PCI IDs        UUID                                      Name                              \
                 Attributes",
                "0               0000:00.06.00  GPU-3d6da830-3ec1-ba21-50e0-3be12cfc8eca  NVIDIA H200                       \
                 N/A",
            ]
        );
        let csv = device_query("Default", &[row], true);
        assert_eq!(csv[2], format!("0,0000:00.06.00,{UUID},NVIDIA H200,N/A"));
    }

    #[test]
    fn get_device_client_list_looks_as_on_580() {
        let pci = PciAddress { domain: 0, bus: 0, device: 0, function: 0 };
        assert_eq!(device_clients_heading(0, pci, "NVIDIA H200"), "[0] 00:00.0, NVIDIA H200");
        assert_eq!(client_on_device(549, 1), "549.1");
    }

    #[test]
    fn lspart_can_be_read_by_the_rules_of_its_users() {
        let mut device = SmDevice {
            uuid: UUID.to_owned(),
            free_chunks: 16,
            used_chunks: 0,
            free_sms: 132,
            used_sms: 0,
            partitions: vec![],
        };
        let empty = lspart(std::slice::from_ref(&device));
        assert_eq!(empty.len(), 3);
        let fields: Vec<_> = empty[2].split_whitespace().collect();
        assert_eq!((fields[0], fields[1], fields[3]), ("GPU-3d6da830", "16", "132"));

        device.partitions.push(PartitionRow { id: "Jx".to_owned(), chunks: 7, sms: 56, in_use: true });
        let configured = lspart(&[device]);
        assert!(configured[3].starts_with("GPU-"));
        assert_eq!(configured[3].split_whitespace().collect::<Vec<_>>(), ["GPU-3d6da830", "Jx", "7", "56", "Yes"]);
    }
}

//! The questions of the third interface. What is expected has the columns, their order and the examples' form of the
//! manual's section "CLI Command Structure" (docs.nvidia.com, MPS 615, mpsv3-interface).

use super::*;
use crate::core::picture::{GpuFacts, NamedFacts, NamespaceFacts};
use crate::core::{ComputeMode, Gpu};
use remps_proto::admin::{Command, Personality, Report};

fn asked(snapshot: &Snapshot, viewer: Viewer, line: &str) -> Result<Vec<String>, Vec<String>> {
    let Command::Report(Report::Module(query)) = Command::parse(line.as_bytes(), Personality::V580) else {
        panic!("{line} is no question");
    };
    module(snapshot, viewer, &query)
}

/// Two users with a server each, and a standby of the first one's.
fn house() -> Snapshot {
    let mut house = snapshot();
    let first = house.servers[0].clone();
    let standby = ServerFacts { epoch: ServerEpoch(2), pid: Some(520), phase: ServerPhase::Standby, ..first.clone() };
    let other =
        ServerFacts { epoch: ServerEpoch(3), pid: Some(521), uid: 1001, domain: "user 1001".to_owned(), ..first };
    house.servers.extend([standby, other]);
    house.clients[1].phase = ClientPhase::Live;
    house.clients[1].server = Some(521);
    house
}

#[test]
fn servers_are_listed_in_the_manuals_columns() {
    let all = asked(&house(), OWNER, "server list --format=csv,noheader").unwrap();
    assert_eq!(
        all,
        [
            "uid_1000,1000,519,Ready,/run/nvidia-mps,-,-",
            "uid_1000_2,1000,520,Standby,/run/nvidia-mps,-,-",
            "uid_1001,1001,521,Ready,/run/nvidia-mps,-,-",
        ]
    );
    let csv = asked(&house(), OWNER, "server list --format=csv uid_1001").unwrap();
    assert_eq!(csv, ["name,uid,pid,status,pipe-directory,allowed-devices,context-ids", all[2].as_str()]);
    let table = asked(&house(), OWNER, "server list uid_1001").unwrap();
    assert_eq!(
        table,
        [
            "NAME      UID   PID  STATUS  PIPE DIRECTORY   ALLOWED DEVICES  CONTEXT IDS",
            "uid_1001  1001  521  Ready   /run/nvidia-mps  -                -",
        ]
    );
    assert_eq!(asked(&house(), OWNER, "server list uid_1001 --format=table,noheader").unwrap(), table[1..]);
    assert_eq!(asked(&house(), OWNER, "server get uid_1000 pipe-directory").unwrap(), ["/run/nvidia-mps"]);
    assert_eq!(asked(&house(), OWNER, "server get uid_1000_2 pid").unwrap(), ["520"]);
}

#[test]
fn a_server_that_takes_nobody_leaves_its_name_to_the_next() {
    let mut house = house();
    house.servers[0].phase = ServerPhase::Draining;
    house.servers[1].phase = ServerPhase::Active;
    assert_eq!(asked(&house, OWNER, "server get uid_1000 pid").unwrap(), ["520"]);
    assert_eq!(asked(&house, OWNER, "server get uid_1000_1 status").unwrap(), ["Draining"]);
    // One of a cgroup's clients is another one than the user's.
    house.servers[1].domain = "user 1000, cgroup /a".to_owned();
    assert_eq!(asked(&house, OWNER, "server get uid_1000 pid").unwrap_err(), ["Server uid_1000 not found"]);
}

#[test]
fn clients_are_listed_with_the_command_line_last() {
    let mut house = house();
    let gpu = GpuFacts {
        index: 3,
        uuid: "GPU-74d43ed3".to_owned(),
        bus: Some("0000:3b:00".to_owned()),
        compute_mode: None::<ComputeMode>,
        restored: None,
    };
    house.clients[0].gpus = Some(vec![Gpu::new(&gpu.uuid)]);
    house.clients[0].identity.command = "python train.py, twice\n\x1b[2J".to_owned();
    house.gpus = vec![gpu];
    assert_eq!(
        asked(&house, OWNER, "client list --all --format=csv,noheader").unwrap(),
        ["42,uid_1000,3,default,python train.py, twice\\u{a}\\u{1b}[2J", "43,uid_1001,-,default,job-of-1001\\u{a}"],
        "who is gone is no client, and nothing moves the cursor"
    );
    let one = asked(&house, OWNER, "client list --server=uid_1001 --format=csv").unwrap();
    assert_eq!((one.len(), one[0].as_str()), (2, "pid,server,device,namespace,cmd"));
    assert_eq!(asked(&house, OWNER, "client get 42 device").unwrap(), ["3"]);
    assert_eq!(asked(&house, OWNER, "client get 42 maws-ns").unwrap(), ["default"]);
    assert_eq!(asked(&house, OWNER, "client get 44 cmd").unwrap_err(), ["Client 44 not found"]);
}

#[test]
fn what_is_another_users_is_answered_as_if_it_were_not_there() {
    let house = house();
    assert_eq!(asked(&house, ALICE, "server list --format=csv,noheader").unwrap().len(), 2);
    assert_eq!(asked(&house, ALICE, "server get uid_1001 pid"), asked(&house, ALICE, "server get uid_1001 uid"));
    assert_eq!(asked(&house, ALICE, "client list --server=uid_1001").unwrap_err(), ["Server uid_1001 not found"]);
    assert_eq!(asked(&house, ALICE, "client get 43 cmd").unwrap_err(), ["Client 43 not found"]);
    assert_eq!(asked(&house, BOB, "client list --format=csv,noheader").unwrap().len(), 1);
}

#[test]
fn what_takes_a_later_driver_is_refused_by_name_and_the_lists_say_that_there_is_none() {
    let refused = |line: &str| asked(&house(), OWNER, line).unwrap_err().join("\n");
    for (line, said) in [
        ("memacct describe", "memacct describe needs driver >= 615, this one is 580"),
        ("memacct set audit_log=true", "memacct set needs driver >= 615, this one is 580"),
        ("feature enable memacct", "feature memacct needs driver >= 615, this one is 580"),
        ("feature disable context-share", "feature context-share needs driver >= 615, this one is 580"),
        (
            "sm-partition create a --server=uid_1000 --device=0 --chunks=2",
            "sm-partition create needs driver >= 595, this one is 580",
        ),
        (
            "sm-partition delete a --server=uid_1000 --device=0",
            "sm-partition delete needs driver >= 595, this one is 580",
        ),
    ] {
        assert_eq!(refused(line), said, "{line}");
    }
    let answered = |line: &str| asked(&house(), OWNER, line).unwrap();
    assert_eq!(answered("feature describe memacct --format=csv,noheader"), ["memacct,disabled,memacct,-"]);
    assert_eq!(answered("sm-partition list --all --format=csv,noheader"), Vec::<String>::new());
    assert_eq!(refused("sm-partition list --server=nobody"), "Server nobody not found");
}

#[test]
fn status_as_json_has_the_named_servers_that_a_user_may_see() {
    let mut house = house();
    let space =
        NamespaceFacts { name: "red".to_owned(), memory_bytes: Some(2 << 30), thread_percentage: 50.0, priority: 1 };
    let named = |name: &str, uid, namespaces| NamedFacts { name: name.to_owned(), uid, devices: vec![], namespaces };
    house.named = vec![named("training", None, vec![space]), named("uid_1001", Some(1001), vec![])];
    let listed = |viewer| {
        let text = status(house.clone(), viewer, Form::Json).join("\n");
        serde_json::from_str::<Value>(&text).expect("whole JSON")["named"].clone()
    };
    let all = listed(OWNER);
    assert_eq!(all.as_array().map(Vec::len), Some(2), "{all}");
    let red = serde_json::json!({"name": "red", "memory_bytes": 2_u64 << 30, "thread_percentage": 50.0, "priority": 1});
    let want = serde_json::json!({"name": "training", "uid": null, "devices": [], "namespaces": [red]});
    assert_eq!(all[0], want);
    assert_eq!(listed(ALICE).as_array().map(Vec::len), Some(1), "what is another's is not told");
}

//! Where each GPU has a domain of its own, for clients that see no other.

use super::*;

#[test]
fn clients_that_see_one_gpu_by_its_name_have_a_server_for_it() {
    let mut scene = scene(by_gpu(), &[0], &[1]);
    let (first, second) = (uuid(0).to_string(), uuid(1).to_string().to_uppercase());
    assert!(scene.core.must_know_clients());
    let visible_of = |effects: &[Effect]| {
        effects.iter().find_map(|effect| match effect {
            Effect::SpawnServer { gpu, .. } => Some(gpu.clone()),
            _ => None,
        })
    };
    let effects = arrive(&mut scene, 800, 20, Some(&first));
    assert_eq!(visible_of(&effects), Some(Some(first.clone())));
    assert_eq!(
        scene
            .core
            .servers
            .domains()
            .filter(|(_, domain)| domain.key.to_string() == format!("user 1000, {first}"))
            .count(),
        1
    );
    scene.serve(&effects, SERVER + 1);
    let effects = arrive(&mut scene, 801, 21, Some(&second));
    assert_eq!(visible_of(&effects), Some(Some(uuid(1).to_string())));
    for (number, visible) in [(802, "0"), (803, "GPU-0"), (804, &*format!("{first},{}", uuid(1)))] {
        let effects = arrive(&mut scene, number, 22 + u32::try_from(number).unwrap(), Some(visible));
        assert_eq!(visible_of(&effects), None, "{visible} is for the common server");
    }
    let saved = scene.core.saved();
    let alive: Vec<_> = saved.servers.iter().filter(|server| server.ready).cloned().collect();
    let (core, _) = Core::restored(scene.now, by_gpu(), &saved, &alive);
    let names: Vec<_> = core.servers.domains().map(|(_, domain)| domain.key.to_string()).collect();
    assert!(names.contains(&format!("user 1000, {first}")), "{names:?}");
}

/// Clients that see one GPU have a server for it.
fn by_gpu() -> Policy {
    let mut policy = Policy::default();
    policy.domains.default.group.by_gpu = true;
    policy
}

//! The same on a machine with several GPUs: nobody is ended whom the fault may have left alone.

use super::*;

#[test]
fn who_may_be_on_a_gpu_that_the_fault_has_not_reached_keeps_its_server() {
    let [first, second] = world::GPUS.map(|gpu| world::uuid(gpu).to_string());
    // Where each of the two is, and whether the kernel has said where the fault was.
    let cases = [
        ([Some(&first), Some(&first)], true, true),
        ([Some(&first), Some(&first)], false, false),
        ([Some(&first), None], true, false),
        ([Some(&first), Some(&second)], true, false),
    ];
    for (places, is_named, is_ended) in cases {
        for policy in [EndTainted::WhenSpared, EndTainted::Always] {
            let mut story = Story::spared(policy);
            let effects = story.scene.feed(Input::GpusFound(world::places()));
            let devices: Vec<RequestId> = effects
                .iter()
                .filter_map(|effect| match effect {
                    Effect::Ask { id, request: Request::QueryDevices, .. } => Some(*id),
                    _ => None,
                })
                .collect();
            assert_eq!(devices.len(), 2, "of both servers");
            for request in devices {
                story.scene.feed(Input::Replied { request, reply: Ok(Reply::Devices(world::records())) });
            }
            for (peer, place) in [CULPRIT, VICTIM].into_iter().zip(places) {
                let gpus = place.map(|uuid| vec![uuid.clone()]);
                story.scene.feed(Input::SpacesFound { process: key(peer.pid, 0), gpus });
            }
            let effects = if is_named {
                story.scene.feed(Input::Evidence(xid(43, Some(SERVER))))
            } else {
                story.says(CULPRIT, TRAP)
            };
            let effects = story.scene.answer_status(&effects, false);
            assert!(story.scene.is_tainted());
            assert_eq!(story.is_killed(&effects), is_ended, "{places:?}, {is_named}: {effects:?}");
        }
    }
}

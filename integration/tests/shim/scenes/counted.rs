//! What cannot be made again is in a recovery's way as long as it is there, and no longer.

use super::{FOUND, play_alone};
use integration::under_test::once;
use serde_json::json;

fn is_found(scene: &str, found: [u32; 2]) {
    once(|subject| {
        let line = play_alone(subject, scene, &[]);
        assert_eq!(line["heard"], json!({ "found": found }), "{subject}: {scene}: {line}");
    });
}

/// One after the other, with it and after its end.
fn is_in_the_way_until_it_ends(kind: &str) {
    is_found(&format!("with-{kind}"), [FOUND[0]; 2]);
    is_found(&format!("after-{kind}"), FOUND);
}

#[test]
fn each_resource_of_graphics_that_one_call_maps_is_in_the_way_until_it_is_given_up() {
    is_in_the_way_until_it_ends("graphics");
}

#[test]
fn what_is_registered_of_another_interface_is_in_the_way_until_it_is_unregistered() {
    for kind in ["gl-buffer", "gl-image", "egl-image", "vdpau-video", "vdpau-output"] {
        is_found(&format!("with-{kind}"), [FOUND[0]; 2]);
    }
    is_found("after-registrations", FOUND);
}

#[test]
fn a_user_object_is_in_the_way_until_its_function_is_called() {
    is_in_the_way_until_it_ends("user-object");
}

#[test]
fn a_multicast_object_is_in_the_way_until_it_is_released_and_mapped_nowhere() {
    is_in_the_way_until_it_ends("multicast");
}

#[test]
fn a_multicast_object_of_another_process_is_in_the_way_once_it_is_used_as_one_until_it_is_released() {
    is_in_the_way_until_it_ends("imported-multicast");
}

#[test]
fn a_multicast_object_is_in_the_way_by_a_handle_that_was_had_of_its_mapping() {
    is_in_the_way_until_it_ends("retained-multicast");
}

#[test]
fn a_texture_reference_is_in_the_way_until_its_module_is_unloaded() {
    is_in_the_way_until_it_ends("texture-reference");
}

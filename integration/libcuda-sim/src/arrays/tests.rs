//! Sizes of arrays and values of views, as they were measured.

use super::{Arrays, Memory, Shape, Texture};
use crate::codes::Code;

const FLOAT: u64 = 0x20 | 1 << 32;

fn texture() -> Texture {
    Texture { resource: [0; 18], how: Some([0; 13]), view: [0; 14] }
}

#[test]
fn sizes_are_those_that_were_measured() {
    let memory = |words, levels| Shape::new(words).and_then(|shape| shape.memory(levels));
    assert_eq!(memory([1024, 1024, 0, FLOAT, 0], 1), Ok(4 << 20));
    assert_eq!(memory([256, 0, 0, FLOAT, 0], 1), Ok(64 << 10));
    assert_eq!(memory([0, 1, 0, FLOAT, 0], 1), Err(Code::INVALID_VALUE));
    assert_eq!(memory([8, 8, 0, 0x20 | 3 << 32, 0], 1), Err(Code::INVALID_VALUE));
    let shape = Shape::new([8, 4, 6, FLOAT, 1]).expect("sound");
    assert_eq!((shape.level(2).0[..3].to_vec(), shape.level(9).0[2]), (vec![2, 1, 6], 6));
}

#[test]
fn the_lowest_value_that_is_free_is_given_in_each_context_by_itself() {
    let mut arrays = Arrays::default();
    assert_eq!([1, 1, 2, 1].map(|context| arrays.add_texture(context, texture())), [1, 2, 1, 3]);
    assert_eq!(arrays.remove_texture(1, 2, true), Ok(()));
    assert_eq!(arrays.add_texture(1, texture()), 2, "under MPS at once");
    assert_eq!(arrays.remove_texture(1, 1, false), Ok(()));
    assert_eq!(arrays.add_texture(1, texture()), 4, "else not before an array is destroyed");
    let shape = Shape::new([4, 0, 0, FLOAT, 0]).expect("sound");
    arrays.add((1, 0, shape), Memory::None, 0x10);
    assert!(arrays.remove(0x10).is_ok() && arrays.remove(0x10).is_err());
    assert_eq!(arrays.add_texture(1, texture()), 1);
    assert_eq!(arrays.remove_texture(2, 7, true), Err(Code::INVALID_VALUE));
}

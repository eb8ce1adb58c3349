//! Modules and the linker that makes them.

macro_rules! module {
    ($then:ident) => {
        $then! {
            module: Module None;
            {
                fn cuLinkAddData_v2(
                    state: CUlinkState, type_: CUjitInputType, data: *mut c_void, size: usize, name: *const c_char,
                    num_options: c_uint, options: *mut CUjit_option, option_values: *mut *mut c_void,
                );
                fn cuLinkAddFile_v2(
                    state: CUlinkState, type_: CUjitInputType, path: *const c_char, num_options: c_uint,
                    options: *mut CUjit_option, option_values: *mut *mut c_void,
                );
                fn cuLinkComplete(state: CUlinkState, cubin_out: *mut *mut c_void, size_out: *mut usize);
                fn cuLinkCreate_v2(
                    num_options: c_uint, options: *mut CUjit_option, option_values: *mut *mut c_void,
                    state_out: *mut CUlinkState,
                ) made Linker(state_out);
                fn cuLinkDestroy(state: CUlinkState) gone(state);
                fn cuModuleEnumerateFunctions(functions: *mut CUfunction, num_functions: c_uint, mod_: CUmodule)
                    then kept::code::enumerated::functions(name!(), functions, num_functions, mod_);
                fn cuModuleGetFunction(
                    hfunc: *mut CUfunction, hmod: CUmodule, name: *const c_char,
                ) => kept::code::modules::function;
                fn cuModuleGetFunctionCount(count: *mut c_uint, mod_: CUmodule);
                fn cuModuleGetGlobal_v2(
                    dptr: *mut CUdeviceptr, bytes: *mut usize, hmod: CUmodule, name: *const c_char,
                ) => kept::code::modules::variable;
                fn cuModuleGetLoadingMode(mode: *mut CUmoduleLoadingMode);
                fn cuModuleGetSurfRef(
                    surf_ref: *mut CUsurfref, hmod: CUmodule, name: *const c_char,
                ) then kept::account::parts_counted(
                    name!(), kept::account::Reason::Array, one!(surf_ref).map(Key::key), hmod.key(),
                );
                fn cuModuleGetTexRef(
                    tex_ref: *mut CUtexref, hmod: CUmodule, name: *const c_char,
                ) then kept::account::parts_counted(
                    name!(), kept::account::Reason::Array, one!(tex_ref).map(Key::key), hmod.key(),
                );
                fn cuModuleLoad(module: *mut CUmodule, fname: *const c_char) => kept::code::files::module;
                fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void)
                    then kept::code::modules::module(written!(module), image);
                fn cuModuleLoadDataEx(
                    module: *mut CUmodule, image: *const c_void, num_options: c_uint, options: *mut CUjit_option,
                    option_values: *mut *mut c_void,
                ) then kept::code::modules::module_with_options(
                    written!(module), image, num_options, options, option_values,
                );
                fn cuModuleLoadFatBinary(module: *mut CUmodule, fat_cubin: *const c_void)
                    then kept::code::modules::module(written!(module), fat_cubin);
                fn cuModuleUnload(hmod: CUmodule) => kept::code::reading::ends;
            }
            elsewhere {
                fn cuLinkAddData(
                    state: CUlinkState, type_: CUjitInputType, data: *mut c_void, size: usize, name: *const c_char,
                    num_options: c_uint, options: *mut CUjit_option, option_values: *mut *mut c_void,
                );
                fn cuLinkAddFile(
                    state: CUlinkState, type_: CUjitInputType, path: *const c_char, num_options: c_uint,
                    options: *mut CUjit_option, option_values: *mut *mut c_void,
                );
                fn cuLinkCreate(
                    num_options: c_uint, options: *mut CUjit_option, option_values: *mut *mut c_void,
                    state_out: *mut CUlinkState,
                ) made Linker(state_out);
            }
        }
    };
}

module!(describe);

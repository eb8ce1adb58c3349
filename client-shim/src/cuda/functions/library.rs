//! Libraries: modules for all contexts.

macro_rules! library {
    ($then:ident) => {
        $then! {
            library: Library None;
            {
                fn cuLibraryEnumerateKernels(kernels: *mut CUkernel, num_kernels: c_uint, lib: CUlibrary)
                    then kept::code::enumerated::kernels(name!(), kernels, num_kernels, lib);
                fn cuLibraryGetGlobal(
                    dptr: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char,
                ) => kept::code::libraries::variable;
                fn cuLibraryGetKernel(
                    kernel: *mut CUkernel, library: CUlibrary, name: *const c_char,
                ) => kept::code::libraries::kernel;
                fn cuLibraryGetKernelCount(count: *mut c_uint, lib: CUlibrary);
                fn cuLibraryGetManaged(
                    dptr: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char,
                ) then kept::account::parts_counted(
                    name!(), kept::account::Reason::Managed, one!(dptr).map(Key::key), library.key(),
                );
                fn cuLibraryGetModule(mod_: *mut CUmodule, library: CUlibrary)
                    then kept::code::libraries::library_module(written!(mod_), library);
                fn cuLibraryGetUnifiedFunction(
                    fptr: *mut *mut c_void, library: CUlibrary, symbol: *const c_char,
                ) then kept::account::parts_counted(
                    name!(), kept::account::Reason::Variable, one!(fptr).map(Key::key), library.key(),
                );
                fn cuLibraryLoadData(
                    library: *mut CUlibrary, code: *const c_void, jit_options: *mut CUjit_option,
                    jit_options_values: *mut *mut c_void, num_jit_options: c_uint,
                    library_options: *mut CUlibraryOption, library_option_values: *mut *mut c_void,
                    num_library_options: c_uint,
                ) then kept::code::libraries::library(
                    "cuLibraryLoadData", written!(library), kept::code::modules::copied(code),
                    (num_jit_options, jit_options, jit_options_values), (num_library_options, library_options),
                );
                fn cuLibraryLoadFromFile(
                    library: *mut CUlibrary, file_name: *const c_char, jit_options: *mut CUjit_option,
                    jit_options_values: *mut *mut c_void, num_jit_options: c_uint,
                    library_options: *mut CUlibraryOption, library_option_values: *mut *mut c_void,
                    num_library_options: c_uint,
                ) => kept::code::files::library;
                fn cuLibraryUnload(library: CUlibrary) => kept::code::reading::ends;
            }
            elsewhere {
            }
        }
    };
}

library!(describe);

//! The binary: everything is in the library, so that tests reach it.

/// Each attempt and each publish allocates; docs/decisions/0073 has what this one saves.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    postrider::cli::main()
}

#include "gyre/store/reading/mount.h"

#include <fmt/format.h>
#include <unistd.h>

#include <string_view>

#include "gyre/base/error.h"
#include "gyre/base/parse.h"
#include "gyre/base/process.h"

// Only its headers are needed to build: the library is loaded by those who mount something.
#if __has_include(<fuse3/fuse.h>)
#define GYRE_WITH_FUSE
#define FUSE_USE_VERSION 31
#include <dlfcn.h>
#include <fuse3/fuse.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <span>
#include <vector>
#endif

namespace gyre::store {

#ifndef GYRE_WITH_FUSE

void serve_mount(const data::FileOpener&, const std::string&, const std::filesystem::path&,
                 const std::function<void()>&, const std::function<void(const std::string&)>&) {
  throw Error(ErrorCode::kUnsupported, "this Gyre was built without libfuse3-dev, and cannot mount anything");
}

#else

namespace {

namespace fs = std::filesystem;

constexpr const char* kLibrary = "libfuse3.so.3";
constexpr const char* kDevice = "/dev/fuse";
/// Of fuse_main(), where its loop did not end by an unmounting.
constexpr int kEndedBySignal = 8;
constexpr std::size_t kMostMessageBytes = 1'024;
constexpr double kForEver = 1e6;  ///< Seconds that the kernel keeps names and sizes: they do not change.

using File = std::unique_ptr<const data::ReadableFile>;

/// What FUSE's operations work on: its C functions have no argument for it.
struct Mount {
  const data::FileOpener* opener;
  std::string root;
  const std::function<void()>* mounted;
  const std::function<void(const std::string&)>* report;
  timespec since{};
  bool is_mounted = false;
};

decltype(&::fuse_get_context) context_of_call = nullptr;

/// What libfuse says, which it would print itself: see serve_mount().
std::function<void(const std::string&)> said_by_library;

Mount& mount_of_call() { return *static_cast<Mount*>(context_of_call()->private_data); }

std::string name_of(const Mount& mount, const char* path) {
  return std::string_view(path) == "/" ? mount.root : mount.root + path;
}

/// What `act` returns, or the negative errno for what it throws.
template <typename Act>
int answer(const Act& act) {
  try {
    return act();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kNotFound) return -ENOENT;
    (*mount_of_call().report)(error.what());
    return -EIO;
  } catch (const std::exception& error) {
    (*mount_of_call().report)(error.what());
    return -EIO;
  }
}

const File& file_of(const fuse_file_info* info) {
  return *reinterpret_cast<const File*>(info->fh);  // NOLINT(performance-no-int-to-ptr): FUSE keeps it as a number.
}

void* begin(fuse_conn_info*, fuse_config* config) {
  config->attr_timeout = kForEver;
  config->entry_timeout = kForEver;
  config->kernel_cache = 1;
  Mount& mount = mount_of_call();
  mount.is_mounted = true;
  (*mount.mounted)();
  return &mount;
}

int get_attributes(const char* path, struct stat* status, fuse_file_info* info) {
  return answer([&] {
    const Mount& mount = mount_of_call();
    *status = {};
    status->st_uid = ::geteuid();
    status->st_gid = ::getegid();
    status->st_mtim = status->st_ctim = status->st_atim = mount.since;
    const std::string name = name_of(mount, path);
    const data::FileKind kind = mount.opener->folders().kind(name);
    if (kind == data::FileKind::kFolder) {
      status->st_mode = S_IFDIR | 0555;
      status->st_nlink = 2;
      return 0;
    }
    if (kind != data::FileKind::kFile) return -ENOENT;
    status->st_mode = S_IFREG | 0444;
    status->st_nlink = 1;
    status->st_size =
        static_cast<off_t>(info != nullptr ? file_of(info)->size_bytes() : (*mount.opener)(name)->size_bytes());
    return 0;
  });
}

int read_folder(const char* path, void* buffer, fuse_fill_dir_t fill, off_t, fuse_file_info*, fuse_readdir_flags) {
  return answer([&] {
    const Mount& mount = mount_of_call();
    const auto add = [&](const char* name) { fill(buffer, name, nullptr, 0, fuse_fill_dir_flags{}); };
    add(".");
    add("..");
    for (const data::FolderEntry& entry : mount.opener->folders().list(name_of(mount, path))) add(entry.name.c_str());
    return 0;
  });
}

int open_file(const char* path, fuse_file_info* info) {
  if ((info->flags & O_ACCMODE) != O_RDONLY) return -EROFS;
  return answer([&] {
    const Mount& mount = mount_of_call();
    info->fh = reinterpret_cast<std::uint64_t>(new File((*mount.opener)(name_of(mount, path))));
    info->keep_cache = 1;
    return 0;
  });
}

int read_file(const char*, char* into, std::size_t size, off_t offset, fuse_file_info* info) {
  return answer([&] {
    const File& file = file_of(info);
    const auto from = static_cast<std::uint64_t>(offset);
    if (from >= file->size_bytes()) return 0;
    const std::size_t count = std::min<std::uint64_t>({size, file->size_bytes() - from, INT_MAX});
    try {
      file->read_at(from, std::as_writable_bytes(std::span(into, count)));
    } catch (const Error& error) {
      throw Error(ErrorCode::kIo, error.what());  // Also of an object that has gone: the file is open.
    }
    return static_cast<int>(count);
  });
}

int close_file(const char*, fuse_file_info* info) {
  delete &file_of(info);
  return 0;
}

/// libfuse's messages come through here.
void take_message(fuse_log_level, const char* format, va_list values) {
  std::array<char, kMostMessageBytes> text{};
  std::vsnprintf(text.data(), text.size(), format, values);
  std::string message = text.data();
  while (message.ends_with('\n')) message.pop_back();
  // libfuse 3.12 to 3.15 complain of their own default, which -o max_threads does not replace.
  if (message.empty() || message.starts_with("Ignoring invalid max threads value")) return;
  said_by_library(message);
}

fuse_operations operations() {
  fuse_operations all{};
  all.init = begin;
  all.getattr = get_attributes;
  all.readdir = read_folder;
  all.open = open_file;
  all.read = read_file;
  all.release = close_file;
  return all;
}

void check_machine(const fs::path& place) {
  if (::access(kDevice, R_OK | W_OK) != 0) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("cannot mount in {}: {} cannot be opened: {}; in a container it takes --device {}",
                            place.string(), kDevice, std::strerror(errno), kDevice));
  }
  try {
    static_cast<void>(find_command("fusermount3", environment_variable("PATH").value_or("")));
  } catch (const SpawnError&) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("cannot mount in {}: fusermount3 is not in PATH (package fuse3)", place.string()));
  }
}

}  // namespace

void serve_mount(const data::FileOpener& opener, const std::string& root, const fs::path& place,
                 const std::function<void()>& mounted, const std::function<void(const std::string&)>& report) {
  check_machine(place);
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  const auto find = [&](const char* name) { return library == nullptr ? nullptr : ::dlsym(library, name); };
  const auto run = reinterpret_cast<decltype(&::fuse_main_real)>(find("fuse_main_real"));
  const auto set_log = reinterpret_cast<decltype(&::fuse_set_log_func)>(find("fuse_set_log_func"));  // From 3.7 on.
  context_of_call = reinterpret_cast<decltype(&::fuse_get_context)>(find("fuse_get_context"));
  if (run == nullptr || context_of_call == nullptr) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("cannot mount in {}: {} cannot be loaded (package libfuse3-3)", place.string(), kLibrary));
  }
  Mount mount{.opener = &opener, .root = root, .mounted = &mounted, .report = &report};
  ::clock_gettime(CLOCK_REALTIME, &mount.since);
  const fuse_operations all = operations();
  // In the foreground; gone with this process, however it ends.
  std::vector<std::string> words = {"gyre", "-f", "-o", "ro,auto_unmount,fsname=gyre,subtype=gyre", place.string()};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  std::string reason;
  said_by_library = [&](const std::string& message) {
    if (mount.is_mounted) {
      report("libfuse: " + message);
    } else {
      reason += (reason.empty() ? "" : "; ") + message;
    }
  };
  if (set_log != nullptr) set_log(take_message);
  const int code = run(static_cast<int>(arguments.size()), arguments.data(), &all, sizeof all, &mount);
  if (set_log != nullptr) set_log(nullptr);
  if (code != 0 && !(mount.is_mounted && code == kEndedBySignal)) {
    throw Error(ErrorCode::kIo, fmt::format("cannot mount in {}: {}", place.string(),
                                            reason.empty() ? "libfuse's reason is above" : reason));
  }
}

#endif

}  // namespace gyre::store

#include "gyre/store/sources/curl_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "gyre/base/error.h"

namespace gyre::store {

namespace {

constexpr const char* kLibrary = "libgyre_curl.so";

const curl::Interface& load() {
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const problem = ::dlerror();
    throw Error(ErrorCode::kUnsupported, fmt::format("cannot load {}, which makes requests to web servers: {}",
                                                     kLibrary, problem == nullptr ? "" : problem));
  }
  const auto entry = reinterpret_cast<curl::Entry>(::dlsym(library, curl::kEntry));
  const curl::Interface* const found = entry == nullptr ? nullptr : entry();
  if (found == nullptr || found->version != curl::kInterfaceVersion) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{} is of another build of Gyre; install the whole of it again", kLibrary));
  }
  return *found;
}

}  // namespace

const curl::Interface& curl_library() {
  static const curl::Interface& loaded = load();  // Tried again where it fails.
  return loaded;
}

}  // namespace gyre::store

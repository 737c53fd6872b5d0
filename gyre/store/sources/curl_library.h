#pragma once

#include "gyre/store/sources/curl/plugin.h"

namespace gyre::store {

/// Loads libgyre_curl.so, once; it stays. Thread-safe. Error(kUnsupported) where it is missing, or of another build.
const curl::Interface& curl_library();

}  // namespace gyre::store

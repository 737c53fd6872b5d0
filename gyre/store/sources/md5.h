#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "gyre/store/sources/source.h"

namespace gyre::store {

/// MD5, for comparing with what object stores keep; no defence against an adversary. Not thread-safe.
class Md5Sum {
 public:
  Md5Sum();
  ~Md5Sum();
  Md5Sum(const Md5Sum&) = delete;
  Md5Sum& operator=(const Md5Sum&) = delete;

  void add(std::span<const std::byte> bytes);
  /// Of all that was added; the last call.
  Md5 result();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace gyre::store

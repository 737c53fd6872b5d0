#pragma once

#include <pthread.h>

#include <cstddef>

namespace gyre {

/// While one lives, this process can start no threads: their stacks would be larger than any address space.
class NoThreads {
 public:
  NoThreads() {
    ::pthread_attr_init(&before_);
    ::pthread_getattr_default_np(&before_);
    pthread_attr_t impossible;
    ::pthread_attr_init(&impossible);
    ::pthread_attr_setstacksize(&impossible, std::size_t{1} << 50);
    ::pthread_setattr_default_np(&impossible);
    ::pthread_attr_destroy(&impossible);
  }
  ~NoThreads() {
    ::pthread_setattr_default_np(&before_);
    ::pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_;
};

}  // namespace gyre

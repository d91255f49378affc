/* memory for large parts, in huge pages where the system has them */
static unsigned char *taken(size_t n_bytes) {
  const size_t page = (size_t)1 << 21;
  unsigned char *found = aligned_alloc(page, (n_bytes + page - 1) / page * page);
#ifdef MADV_HUGEPAGE
  if (found) madvise(found, n_bytes, MADV_HUGEPAGE);
#endif
  return found;
}

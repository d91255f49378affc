/* @NAME@ as a program: inputs from files, outputs to files, arrays as they are in memory, row by row.
 *
 *   ./@NAME@@USAGE@
 *
 * --steps K reads K inputs from each file and appends K outputs; sizes may be lists such as 5,6,7, one for each step.
 * --time K then repeats the last step K times and prints the median in nanoseconds. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "@NAME@.h"

enum kind { INPUT, UPDATE, SIZE, OUTPUT };
struct value {
  const char *name;
  enum kind kind;
  size_t most_bytes, bytes; /* of the largest sizes, and of those of now */
  const char *text;         /* what the command line says */
  FILE *file;
  void *data;
  int64_t number;
};
static struct value values[] = {
@VALUES@
};
enum { N_VALUES = sizeof values / sizeof *values };

static void resize(void) {
@RESIZE@
}

static int call(void) {
  return @CALL@;
}

static int fail(const char *name, const char *what) {
  fprintf(stderr, "@NAME@: %s: %s\n", name, what);
  return 1;
}

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static int measure(long times) {
  double *ns = malloc((size_t)times * sizeof *ns);
  if (!ns) return fail("--time", "out of memory");
  for (long k = 0; k < times; k++) {
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    const int code = call();
    clock_gettime(CLOCK_MONOTONIC, &to);
    if (code) return fail("step", @NAME@_error(code));
    ns[k] = 1e9 * (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec);
  }
  qsort(ns, (size_t)times, sizeof *ns, compare);
  printf("median of %ld steps: %.0f ns\n", times, ns[times / 2]);
  free(ns);
  return 0;
}

static int one_step(void) {
  for (int k = 0; k < N_VALUES; k++)
    if (values[k].kind == SIZE && *values[k].text) { /* the next of a list; the last one stays */
      char *end;
      values[k].number = strtoll(values[k].text, &end, 10);
      if (end == values[k].text) return fail(values[k].name, "a number, or numbers with commas between");
      values[k].text = end + (*end == ',');
    }
  resize();
  for (int k = 0; k < N_VALUES; k++) {
    struct value *v = &values[k];
    if (v->bytes > v->most_bytes) return fail(v->name, "a size is out of its bounds");
    if ((v->kind == INPUT || v->kind == UPDATE) && fread(v->data, 1, v->bytes, v->file) != v->bytes)
      return fail(v->name, "the file ends before the array");
  }
  const int code = call();
  if (code) return fail("step", @NAME@_error(code));
  for (int k = 0; k < N_VALUES; k++) {
    struct value *v = &values[k];
    if (v->kind == OUTPUT && v->file && fwrite(v->data, 1, v->bytes, v->file) != v->bytes)
      return fail(v->name, "cannot write the file");
  }
  return 0;
}

int main(int argc, char **argv) {
  const char *weights = "@NAME@.weights";
  long steps = 1, times = 0;
  for (int i = 1; i < argc; i++) {
    const char *equals = strchr(argv[i], '=');
    int known = 0;
    for (int k = 0; equals && k < N_VALUES; k++) {
      const size_t n = strlen(values[k].name);
      if (n == (size_t)(equals - argv[i]) && !strncmp(argv[i], values[k].name, n)) values[k].text = equals + 1, known = 1;
    }
    if (!known && i + 1 < argc) {
      if (!strcmp(argv[i], "--weights")) weights = argv[++i], known = 1;
      else if (!strcmp(argv[i], "--steps")) steps = atol(argv[++i]), known = 1;
      else if (!strcmp(argv[i], "--time")) times = atol(argv[++i]), known = 1;
    }
    if (!known) return fail(argv[i], "not an option; usage: ./@NAME@@USAGE@");
  }
  const int code = @INIT@;
  if (code) return fail(weights, @NAME@_error(code));
  for (int k = 0; k < N_VALUES; k++) {
    struct value *v = &values[k];
    if (v->kind != OUTPUT && !v->text) return fail(v->name, "missing; usage: ./@NAME@@USAGE@");
    if (v->kind == SIZE) continue;
    if (!(v->data = malloc(v->most_bytes))) return fail(v->name, "out of memory");
    if (v->text && !(v->file = fopen(v->text, v->kind == OUTPUT ? "wb" : "rb"))) return fail(v->text, "cannot open the file");
  }
  for (long k = 0; k < steps; k++)
    if (one_step()) return 1;
  if (times > 0 && measure(times)) return 1;
  for (int k = 0; k < N_VALUES; k++)
    if (values[k].file && fclose(values[k].file)) return fail(values[k].text, "cannot write the file");
  return 0;
}

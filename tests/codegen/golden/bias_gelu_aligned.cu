KERNEL(128) void add_gelu(const bf16* __restrict__ g_in0, const bf16* __restrict__ g_in1, bf16* __restrict__ g_out0, i32 p0, FastDiv p1, i32 p2) {
  bf16 r_in0[8];
  bf16 r_in1[8];
  bf16 r_out0[8];
  const i32 v0 = (block_x() * 128) + thread_x();
  if (v0 < p0) {
    const i32 v1 = fast_mod_(v0, p1) * 8;
    const i32 v2 = (fast_div_(v0, p1) * p2) + v1;
    load(r_in0, g_in0 + v2);
    load(r_in1, g_in1 + v1);
    UNROLL for (i32 v3 = 0; v3 < 8; ++v3) {
      const f32 v4 = to<f32>(r_in0[v3]) + to<f32>(r_in1[v3]);
      const f32 v5 = gelu_tanh_half_(v4);
      const bf16 v6 = to<bf16>(v5);
      r_out0[v3] = v6;
    }
    store(g_out0 + v2, r_out0);
  }
}

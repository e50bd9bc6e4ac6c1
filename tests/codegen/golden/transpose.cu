KERNEL2(256, 5) void transpose(const bf16* __restrict__ g_in0, f32* __restrict__ g_out0, FastDiv p0, i32 p1, i32 p2) {
  bf16* tile0 = (bf16*)(shared_memory());
  bf16 t0[32];
  bf16 s0[32];
  bf16 r_in0[32];
  f32 r_out0[32];
  const i32 v0 = fast_mod_(block_x(), p0);
  const i32 v1 = fast_div_(block_x(), p0);
  const i32 v2 = thread_x() / 16;
  const i32 v3 = v0 * 64;
  const i32 v4 = thread_x() % 16;
  const i32 v5 = v4 * 8;
  const i32 v6 = v1 * 128;
  const i32 v7 = ((((v2 * 4) + v3) * p1) + v5) + v6;
  UNROLL for (i32 v8 = 0; v8 < 4; ++v8) {
    load(part<8>(r_in0, v8 * 8), g_in0 + ((v8 * p1) + v7));
  }
  UNROLL for (i32 v8 = 0; v8 < 4; ++v8) {
    UNROLL for (i32 v9 = 0; v9 < 8; ++v9) {
      t0[(v9 * 4) + v8] = r_in0[(v8 * 8) + v9];
    }
  }
  const i32 v10 = ((v2 + v4) % 16) * 4;
  UNROLL for (i32 v9 = 0; v9 < 8; ++v9) {
    store(tile0 + (((v5 + v9) * 64) + v10), part<4>(t0, v9 * 4));
  }
  sync_block();
  const i32 v11 = v2 * 8;
  UNROLL for (i32 v12 = 0; v12 < 8; ++v12) {
    load(part<4>(s0, v12 * 4), tile0 + (((v11 + v12) * 64) + v10));
  }
  UNROLL for (i32 v12 = 0; v12 < 8; ++v12) {
    UNROLL for (i32 v13 = 0; v13 < 4; ++v13) {
      const f32 v14 = relu_(to<f32>(s0[(v12 * 4) + v13]));
      r_out0[(v12 * 4) + v13] = v14;
    }
  }
  const i32 v15 = (((v6 + v11) * p2) + (v4 * 4)) + v3;
  UNROLL for (i32 v12 = 0; v12 < 8; ++v12) {
    store(g_out0 + ((v12 * p2) + v15), part<4>(r_out0, v12 * 4));
  }
}
